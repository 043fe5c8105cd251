"""Texts and replies looked at token by token."""

from __future__ import annotations

from concurrent.futures import Future

from ..promises import chained
from ..token_view.reply_tokens import ReplyToken, ReplyTokens
from .background import Background
from .branching import read_tokens, reply_in, weigh_token, weighed_token
from .comparing import under_variant
from .engine_host import EngineHost
from .live_chats import LiveChats
from .stores import Stores


class TokenLookup:
    """Asks the model that is loaded, or waits for the one that loads; stores nothing."""

    def __init__(self, chats: LiveChats, stores: Stores, host: EngineHost, background: Background) -> None:
        self._chats = chats
        self._stores = stores
        self._host = host
        self._background = background

    def count(self, text: str) -> Future[int]:
        """How many tokens a text has, an attachment's for instance."""
        return self._background.after(self._host.loaded, lambda loaded: len(loaded.engine.encode(text)))

    def of_reply(self, chat_id: str, message_id: int) -> Future[ReplyTokens]:
        """A reply's tokens, how likely each was, and what else could have stood there, as far as that was kept.

        It is kept for replies drawn with `sampling.logprobs`; `alternatives_at` works it out for one token. Raises
        CannotBranch for what a person wrote, ReplyRunning for a reply that still grows.
        """
        reply = reply_in(self._chats.tree(chat_id), message_id)
        logprobs = self._stores.of(chat_id).token_logprobs(message_id)
        self._host.check_usable()
        return self._background.after(self._host.loaded, lambda loaded: read_tokens(loaded, reply, logprobs))

    def alternatives_at(self, chat_id: str, message_id: int, token_index: int) -> Future[ReplyToken]:
        """What else could have stood in one place of a reply, by the model that is loaded; worked out, and not kept.

        It costs what a branch at the place does. Raises as `of_reply` does.
        """
        chat, tree = self._chats.read(chat_id)
        reply = reply_in(tree, message_id)
        own_chat = under_variant(chat, reply)
        self._host.check_usable()
        loaded = self._host.loaded
        begun = self._background.after(loaded, lambda engine: weigh_token(engine, own_chat, tree, reply, token_index))
        weighed = chained(begun, lambda weighing: weighing)
        return self._background.after(
            weighed, lambda logprobs: weighed_token(loaded.result(), reply, token_index, logprobs)
        )
