"""The models that a person can choose by name: the catalogue's, and those of the hub that are on this machine."""

from __future__ import annotations

from paged_chat.engine.model.catalog import ListedModel as KnownModel
from paged_chat.engine.model.catalog import check_name as check_model_name
from paged_chat.engine.model.catalog import is_same_model
from paged_chat.engine.model.catalog import list_models as known_models

__all__ = ["KnownModel", "check_model_name", "is_same_model", "known_models"]
