"""The cache beside the conversation: the pool block by block, counters, a running log, the block under the cursor."""

from __future__ import annotations

from textual.containers import Vertical

from paged_chat.app.service import ChatService


class CachePanel(Vertical):
    """Reads the pool only while it is shown."""

    def __init__(self) -> None:
        super().__init__(id="cache")
        self.border_title = "Cache"
        self._service: ChatService | None = None

    def attach(self, service: ChatService) -> None:
        self._service = service
