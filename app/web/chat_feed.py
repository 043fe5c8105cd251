"""What one open chat is told: the chat when it has changed, and its replies bit by bit."""

from __future__ import annotations

from dataclasses import asdict

from ..cache_view.search_words import search_words
from ..cache_view.sharing import sharing_of_replies
from ..chats import Message
from ..service.chat_events import ReplyUpdate
from ..service.chat_service import ChatService
from .page_socket import News
from .panel_strip import strip_view
from .streaming_markdown import StreamingMarkdown
from .views import MessageView, chat_entry, columns_of, message_view
from .why_view import why_view

# How many messages a page gets at once; a long chat's older ones come when they are scrolled to.
WINDOW = 40


class ChatFeed:
    """Turns what the service tells about a chat into news for one page; not for several threads at a time.

    Always: a message that the page has is in `_told` as it was told; of a reply that is being written, `_streams` has
            the blocks that the page has.
    """

    def __init__(self, service: ChatService, chat_id: str, user: str) -> None:
        self._service = service
        self._chat_id = chat_id
        self._user = user
        self._told: dict[int, MessageView] = {}
        self._streams: dict[int, StreamingMarkdown] = {}
        self._first_shown_id: int | None = None

    def read(self) -> list[News]:
        """The chat as it is now: all that the page needs to know and doesn't yet. Raises ChatNotFound."""
        live_ids = {message.id for message in self._service.running(self._chat_id)}
        chat = self._service.chat(self._chat_id, self._user)
        tree = self._service.tree(self._chat_id)
        path = tree.path(chat.active_leaf_id)
        num_older = self._place_window(path)
        columns = columns_of(tree, chat.active_leaf_id)
        sharing = sharing_of_replies([tree[id] for id in columns])
        shown = {message.id: message for message in path[num_older:]} | {id: tree[id] for id in columns}
        views = {id: message_view(message, tree, is_live=id in live_ids) for id, message in shown.items()}
        changed = [view for id, view in views.items() if self._told.get(id) != view]
        unseen = [id for id in live_ids if id in views and id not in self._told]
        self._told = views
        news: list[News] = [
            {
                "kind": "chat",
                "chat": asdict(chat_entry(chat, [self._chat_id] if live_ids else [])),
                "num_replies": chat.sampling.n,
                "path": [message.id for message in path[num_older:]],
                "num_older": num_older,
                "columns": columns,
                "sharing": None if sharing is None else str(sharing),
                "messages": [asdict(view) for view in changed],
            }
        ]
        # What was written of them while they weren't on the page.
        news += [self._so_far(id) for id in unseen if id in self._streams]
        return news

    def read_older(self) -> list[News]:
        """As `read`, with one more window of older messages."""
        chat = self._service.chat(self._chat_id, self._user)
        path = self._service.tree(self._chat_id).path(chat.active_leaf_id)
        first = next((i for i, message in enumerate(path) if message.id == self._first_shown_id), len(path))
        self._first_shown_id = path[max(0, first - WINDOW)].id if path else None
        return self.read()

    def reply(self, update: ReplyUpdate) -> News | None:
        """What is new of a reply; None if the page doesn't show it."""
        stream = self._streams.setdefault(update.message_id, StreamingMarkdown())
        change = stream.update(update.text)
        if update.has_ended:
            del self._streams[update.message_id]
        if update.message_id not in self._told:
            return None
        strip = strip_view(update.cost_so_far)
        why = why_view(update.miss)
        return {
            "kind": "reply",
            "id": update.message_id,
            "num_kept": change.num_kept,
            "blocks": change.new_blocks,
            "new_text": update.new_text,
            "is_whole": update.new_text == update.text,
            "status": update.status,
            "num_generated_tokens": update.num_generated_tokens,
            "tokens_per_s": update.tokens_per_s,
            "search": None if update.search is None else search_words(update.search),
            "cost": None if update.cost_so_far is None else asdict(update.cost_so_far),
            "strip": None if strip is None else asdict(strip),
            "left_out_ids": None if update.plan is None else update.plan.left_out_ids,
            "why": None if why is None else asdict(why),
            "error": update.error or update.save_error,
        }

    def _so_far(self, message_id: int) -> News:
        stream = self._streams[message_id]
        return {"kind": "reply", "id": message_id, "num_kept": 0, "blocks": stream.blocks, "status": "draft"}

    def _place_window(self, path: list[Message]) -> int:
        """How many messages of the path stand before the first that is shown; it stays as the chat grows."""
        for index, message in enumerate(path):
            if message.id == self._first_shown_id:
                return index
        first = max(0, len(path) - WINDOW)
        self._first_shown_id = path[first].id if path else None
        return first
