"""The command palette: every action, and every chat by its title."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from paged_chat.app.chats import Chat

from .actions import ACTIONS, Action
from .plain_text import plain

if TYPE_CHECKING:
    from .app import PagedChatTui
    from .screens.chat_screen import ChatScreen


OFFERED = [action for action in ACTIONS if not action.is_in_prompt]


class ActionProvider(Provider):
    """What can be done, with the key that does it at once."""

    async def discover(self) -> Hits:
        for action in OFFERED:
            yield DiscoveryHit(action.title, self._runner(action), help=self._keys(action))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in OFFERED:
            if (score := matcher.match(action.title)) > 0:
                yield Hit(score, matcher.highlight(action.title), self._runner(action), help=self._keys(action))

    def _keys(self, action: Action) -> str:
        keymap = cast("PagedChatTui", self.app).keymap
        return keymap.get(action.name, action.keys).replace(",", ", ")

    def _runner(self, action: Action) -> Callable[[], Awaitable[None]]:
        screen = self.screen

        async def run() -> None:
            await screen.run_action(f"screen.{action.name}")

        return run


class ChatProvider(Provider):
    """Every chat; archived ones too."""

    async def search(self, query: str) -> Hits:
        service = cast("ChatScreen", self.screen).service
        if service is None:
            return
        matcher = self.matcher(query)
        for chat in service.chats(archived=None):
            title = plain(chat.title)
            if (score := matcher.match(title)) > 0:
                yield Hit(score, matcher.highlight(title), self._opener(chat), help="opens this chat")

    def _opener(self, chat: Chat) -> Callable[[], Awaitable[None]]:
        screen = cast("ChatScreen", self.screen)

        async def open_chat() -> None:
            await screen.open_chat(chat.id)

        return open_chat
