"""The models that a person can choose by name: the catalogue's, and those of the hub that are on this machine.

For screens above `app`, which don't import the engine.
"""

from __future__ import annotations

from paged_chat.engine.model.catalog import check_name as check_model_name
from paged_chat.engine.model.catalog import list_models as known_models

__all__ = ["check_model_name", "known_models"]
