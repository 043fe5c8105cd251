"""What both screens call: people's chats, and the replies that are being written in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from paged_chat.engine.config import EngineConfig
from paged_chat.engine.request import SamplingParams

from .attachments import Attachment
from .chat_events import AppEvent, ChatEvent, EngineStatus
from .chats import Chat, Message, MessageTree
from .send_plan import SendPlan
from .watch import Watcher

if TYPE_CHECKING:
    from paged_chat.engine import Engine

    from .engine_host import OpenEngine
    from .store import SearchHit, Store, StoreStats, Turn

Result = TypeVar("Result")


class ChatService:
    """Chats, and the replies that are being written in them.

    Every method may be called from any thread and from an event loop: it reads or writes the store, which takes
    milliseconds, and never waits for the engine. What the engine must answer comes as a future or through a watcher.

    A reply belongs to its chat and message, not to the screen that asked for it: screens come and go, and find it by
    watching the chat. A message is named by its chat and its id.

    Raises, from whatever names a chat or a message: ChatNotFound, MessageNotFound; from whatever writes: StoreBusy,
    DiskFull, StoreDamaged. All errors derive from PagedChatError and say what to do.
    """

    def __init__(
        self,
        store: Store,
        open_engine: OpenEngine | None = None,
        *,
        config: EngineConfig | None = None,
        default_sampling: SamplingParams | None = None,
    ) -> None:
        """Begins to load the model, and marks drafts that a killed process left as stopped.

        store: stays the caller's, who closes it after the service.
        open_engine: makes an engine of a configuration, an AsyncEngine by default; a FakeEngine's `open` in tests.
        default_sampling: what a new chat gets unless it is told otherwise.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Stops every reply, saves what there is of it, closes the engine; takes a second at most. Safe twice."""
        raise NotImplementedError

    # Chats

    def create_chat(
        self,
        *,
        user: str = "",
        title: str | None = None,
        system_prompt: str | None = None,
        model: str | None = None,
        sampling: SamplingParams | None = None,
        tags: Sequence[str] = (),
        is_temporary: bool = False,
    ) -> Chat:
        """A temporary chat lives in memory until it is deleted or the service is closed."""
        raise NotImplementedError

    def chat(self, chat_id: str, user: str | None = None) -> Chat:
        """With `user` given, somebody else's chat isn't found."""
        raise NotImplementedError

    def chats(
        self,
        *,
        user: str = "",
        archived: bool = False,
        tag: str | None = None,
        limit: int | None = None,
        before: datetime | None = None,
    ) -> list[Chat]:
        """Pinned first, then newest; temporary ones among them."""
        raise NotImplementedError

    def tree(self, chat_id: str) -> MessageTree:
        """The chat's messages; those that are being written with their text as far as it has come."""
        raise NotImplementedError

    def message(self, chat_id: str, message_id: int) -> Message:
        raise NotImplementedError

    def version(self, chat_id: str) -> int:
        """Counts every change to the chat; costs little."""
        raise NotImplementedError

    def rename(self, chat_id: str, title: str) -> Chat:
        raise NotImplementedError

    def update_chat(self, chat_id: str, **changes: Any) -> Chat:
        """Changes is_pinned, is_archived, tags, system_prompt, model or sampling."""
        raise NotImplementedError

    def delete_chat(self, chat_id: str) -> None:
        """Stops its replies; `restore_chat` brings it back until the store is closed. A temporary chat is gone."""
        raise NotImplementedError

    def restore_chat(self, chat_id: str) -> Chat:
        raise NotImplementedError

    def pick(self, chat_id: str, message_id: int) -> Chat:
        """Shows the path through this message, from there on by the newest: walks between siblings."""
        raise NotImplementedError

    def fork(self, chat_id: str, message_id: int) -> Chat:
        """A new chat that begins with the path up to this message. Raises ReplyRunning for one that still grows."""
        raise NotImplementedError

    def delete_message(self, chat_id: str, message_id: int) -> Chat:
        """Deletes a message and all that follows from it, and stops what is written there; can be undone."""
        raise NotImplementedError

    def restore_message(self, chat_id: str, message_id: int) -> Chat:
        raise NotImplementedError

    def search(self, query: str, *, user: str = "", limit: int = 50) -> list[SearchHit]:
        """Titles and messages of stored chats; temporary ones are in no search."""
        raise NotImplementedError

    def stats(self, user: str = "") -> StoreStats:
        raise NotImplementedError

    # Presets

    def system_prompts(self) -> dict[str, str]:
        """By name, in the names' order."""
        raise NotImplementedError

    def save_system_prompt(self, name: str, text: str) -> None:
        raise NotImplementedError

    def delete_system_prompt(self, name: str) -> None:
        raise NotImplementedError

    def sampling_presets(self) -> dict[str, SamplingParams]:
        """By name, in the names' order."""
        raise NotImplementedError

    def save_sampling_preset(self, name: str, sampling: SamplingParams) -> None:
        raise NotImplementedError

    def delete_sampling_preset(self, name: str) -> None:
        raise NotImplementedError

    # Replies

    def send(
        self,
        chat_id: str,
        text: str,
        *,
        parent_id: int | None = None,
        n: int | None = None,
        sampling: SamplingParams | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> Turn:
        """Stores the message and its draft replies, then has them written.

        parent_id: the reply that it answers; the chat's active leaf if it is None. A screen gives the leaf it shows,
            so that a stale one adds a branch and overwrites nothing.
        n: replies side by side, computed as one request; sampling.n if it is None.
        sampling: the chat's own if it is None.

        Raises, with nothing stored: EmptyMessage, PromptTooLong, EngineUnavailable (loading failed), ReplyRunning
        (the parent is still being written), InvalidParameter.
        """
        raise NotImplementedError

    def edit(
        self,
        chat_id: str,
        message_id: int,
        text: str,
        *,
        n: int | None = None,
        sampling: SamplingParams | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> Turn:
        """Sends another text in the place of a person's message, as its sibling. Raises as `send` does."""
        raise NotImplementedError

    def retry(
        self, chat_id: str, message_id: int, *, n: int | None = None, sampling: SamplingParams | None = None
    ) -> Turn:
        """Another reply beside this one, or to this message of a person; with other random numbers.

        n: 1 if it is None. Raises as `send` does; a reply that still grows goes on beside the new one.
        """
        raise NotImplementedError

    def continue_reply(self, chat_id: str, message_id: int) -> Message:
        """Goes on in the same message, where it was stopped or had reached its longest length.

        Raises NothingToContinue for a reply that came to its own end, and what `send` raises.
        """
        raise NotImplementedError

    def stop(self, chat_id: str, message_id: int | None = None) -> int:
        """Stops one reply, or all of a chat; gives how many were running. They end as "stopped" in a moment."""
        raise NotImplementedError

    def stop_all(self) -> int:
        """Stops every reply of every chat."""
        raise NotImplementedError

    def running(self, chat_id: str) -> tuple[Message, ...]:
        """The replies that are being written in a chat, as far as they have come."""
        raise NotImplementedError

    def running_chat_ids(self) -> frozenset[str]:
        raise NotImplementedError

    def watch(self, chat_id: str, *, until_idle: bool = False) -> Watcher[ChatEvent]:
        """Follows a chat: first a ChatChanged, then every running reply from its start, then what happens.

        until_idle: it ends by itself when no reply of the chat is running any more and everything was told.
        A screen that reads the tree at each ChatChanged, after it began to watch, misses nothing.
        """
        raise NotImplementedError

    def watch_app(self) -> Watcher[AppEvent]:
        """Follows the list of chats and the engine: first how the engine stands, then what happens."""
        raise NotImplementedError

    # What sending would cost

    def plan(
        self, chat_id: str, text: str, *, parent_id: int | None = None, attachments: Sequence[Attachment] = ()
    ) -> Future[SendPlan]:
        """What `send` would reuse, compute and leave out, now. The future waits for the model to load.

        The future raises what `send` would raise; cancel it when the text has changed.
        """
        raise NotImplementedError

    def plan_edit(
        self, chat_id: str, message_id: int, text: str, *, attachments: Sequence[Attachment] = ()
    ) -> Future[SendPlan]:
        raise NotImplementedError

    def plan_retry(self, chat_id: str, message_id: int) -> Future[SendPlan]:
        raise NotImplementedError

    def count_tokens(self, text: str) -> Future[int]:
        """How many tokens a text has, an attachment's for instance."""
        raise NotImplementedError

    # The engine

    @property
    def engine_status(self) -> EngineStatus:
        raise NotImplementedError

    def switch_model(self, model: str, *, force: bool = False) -> None:
        """Closes the engine and loads another model, in the background; chats keep the model they name.

        Raises ReplyRunning while replies are being written, unless `force` stops them.
        """
        raise NotImplementedError

    def ask_engine(self, function: Callable[[Engine], Result]) -> Future[Result]:
        """Runs `function` on the engine's thread between two steps: snapshots, block events."""
        raise NotImplementedError
