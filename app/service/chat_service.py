"""What both screens call: people's chats, and the replies that are being written in them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from paged_chat.engine.config import EngineConfig
from paged_chat.engine.errors import InvalidParameter, PagedChatError
from paged_chat.engine.request import SamplingParams

from ..attachments import Attachment, with_attachments
from ..chats import Chat, Message, MessageTree, Turn
from ..comparison.variant import Variant, check_variants
from ..counted import counted
from ..engine_query import Query
from ..errors import EmptyMessage, EngineUnavailable, service_closed
from ..store.store import Store
from ..transcript.miss_reason import MissReason
from .background import Background
from .branching import new_branch, params_of, reply_in
from .chat_events import AppEvent, ChatEvent, EngineStatus
from .chat_library import ChatLibrary
from .comparing import check_all_fit, compared_replies, under_variant
from .default_sampling import DefaultSampling, default_sampling_of
from .engine_host import EngineHost
from .model_fetch import FindModel, take_any_name
from .model_notice import ModelNotice, model_notice
from .model_switch import ModelSwitch
from .new_turn import find_whole, new_replies, parent_of_edit, parent_of_message, question_of, request_params
from .own_engine import find_own_model, open_own_engine
from .prompts import check_fits, check_room
from .reply_desk import ReplyDesk
from .served_engine import EngineServer, OpenEngine
from .stores import Stores
from .token_lookup import TokenLookup
from .turn_plans import TurnPlans
from .watch import Watcher
from .watchers import Watchers

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class ChatService(ChatLibrary):
    """Chats, and the replies that are being written in them.

    Every method may be called from any thread and from an event loop: it reads or writes the store, which takes
    milliseconds, and never waits for the engine. What the engine must answer comes as a future or through a watcher.

    A reply belongs to its chat and message, not to the screen that asked for it: screens come and go, and find it by
    watching the chat. A message is named by its chat and its id.

    Raises, from whatever names a chat or a message: ChatNotFound, MessageNotFound; from whatever writes: StoreBusy,
    DiskFull, StoreDamaged, StoreUnavailable. All errors derive from PagedChatError and say what to do.
    """

    def __init__(
        self,
        store: Store,
        open_engine: OpenEngine | None = None,
        *,
        config: EngineConfig | None = None,
        default_sampling: SamplingParams | None = None,
        server: EngineServer | None = None,
        find_model: FindModel | None = None,
    ) -> None:
        """Begins to load the model, and marks drafts that a killed process left as stopped.

        store: stays the caller's, who closes it after the service.
        open_engine: makes an engine of a configuration, an AsyncEngine by default; a FakeEngine's `open` in tests.
        default_sampling: what a new chat gets unless it is told otherwise; None is what suits the model.
        server: another process whose engine is used, until a model is chosen here.
        find_model: looks for a model before the one that answers is closed; None does so for an AsyncEngine, and
            takes any name for an `open_engine` that is given.
        """
        try:
            store.stop_orphaned_drafts()
        except PagedChatError as error:  # a full disk, for instance: chats can be read all the same
            logger.warning("drafts of earlier processes couldn't be marked as stopped: %s", error)
        stores = Stores(store)
        watchers = Watchers(stores, lambda: self._desk.replies())
        self._host = EngineHost(
            open_engine or open_own_engine, config or EngineConfig(), watchers.engine_changed, server
        )
        desk = ReplyDesk(self._host, stores.of, watchers.reply_changed, self._tell)
        super().__init__(
            stores,
            watchers,
            desk,
            lambda: (
                default_sampling_of(self._host.config.model)
                if default_sampling is None
                else DefaultSampling(default_sampling)
            ),
        )
        if find_model is None:
            find_model = find_own_model if open_engine is None else take_any_name
        self._switch = ModelSwitch(self._host, desk, self._sending, find_model)
        self._planning = Background(num_threads=1)
        self._plans = TurnPlans(self._chats, self.unbegun_chat, self._host, self._planning)
        self._tokens = TokenLookup(self._chats, stores, self._host, self._planning)
        self._is_closed = False

    def close(self) -> None:
        """Stops every reply, saves what there is of it, closes the engine. Safe twice.

        Takes a second or two; up to 40 s where another program holds the database, which it says in the log.
        """
        with self._sending:
            if self._is_closed:
                return
            self._is_closed = True
        self._planning.close()
        self._desk.close()
        self._watchers.close()
        self._host.close()
        self._stores.close()

    def __enter__(self) -> ChatService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def plans(self) -> TurnPlans:
        """What `send`, `edit` and the other ways to begin a turn would cost."""
        return self._plans

    @property
    def tokens(self) -> TokenLookup:
        """Texts and replies token by token."""
        return self._tokens

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
        with self._sending:
            chat, tree = self._chats.read(chat_id)
            parent_id = parent_of_message(chat, parent_id)
            return self._ask(chat, tree, parent_id, with_attachments(text, attachments), n, sampling)

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
        with self._sending:
            chat, tree = self._chats.read(chat_id)
            parent_id = parent_of_edit(tree, message_id)
            return self._ask(chat, tree, parent_id, with_attachments(text, attachments), n, sampling)

    def compare(
        self,
        chat_id: str,
        text: str,
        variants: Sequence[Variant],
        *,
        parent_id: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> Turn:
        """Stores the message and a draft for each variant, then has them written side by side in the one engine.

        Those with the same system prompt share the prompt's blocks. Variants without a seed of their own draw with the
        same one. Raises as `send` does, and ComparisonRefused with each variant that can't be used, and why.
        """
        with self._sending:
            chat, tree = self._chats.read(chat_id)
            parent_id = parent_of_message(chat, parent_id)
            text = self._checked_text(tree, parent_id, with_attachments(text, attachments))
            check_variants(variants)
            if self._host.loaded.done():
                check_all_fit(self._host.loaded.result(), chat, text, variants)
            replies = compared_replies(self._host.config.model, variants)
            turn = self._stores.of(chat_id).add_turn(chat_id, parent_id, text, replies)
            assert turn.user_message is not None, "a comparison has a question"
            self._desk.compare(chat, [*tree.path(parent_id), turn.user_message], turn.replies)
            return turn

    def retry(
        self, chat_id: str, message_id: int, *, n: int | None = None, sampling: SamplingParams | None = None
    ) -> Turn:
        """Another reply beside this one, or to this message of a person; with other random numbers.

        n: 1 if it is None. Raises as `send` does; a reply that still grows goes on beside the new one.
        """
        with self._sending:
            chat, tree = self._chats.read(chat_id)
            return self._begin(
                chat, tree, question_of(tree, message_id), None, 1 if n is None else n, sampling or chat.sampling
            )

    def continue_reply(self, chat_id: str, message_id: int) -> Message:
        """Goes on in the same message, where it was stopped, failed, or had reached its longest length.

        Raises CannotContinue for a reply that came to its own end, or that others follow, and what `send` raises.
        """
        with self._sending:
            self._check_usable()
            chat, tree = self._chats.read(chat_id)
            path = tree.path(message_id)
            own_chat = under_variant(chat, path[-1])
            params = replace(path[-1].sampling or chat.sampling, n=1)
            if path[-1].role == "assistant" and self._host.loaded.done():
                check_room(self._host.loaded.result(), own_chat, path, params.max_tokens)
            draft = self._stores.of(chat_id).reopen_reply(message_id)
            self._desk.go_on(own_chat, path[:-1], draft, params, self._stores.of(chat_id).token_logprobs(message_id))
            return draft

    def branch_at_token(self, chat_id: str, message_id: int, token_index: int, token_id: int) -> Message:
        """A sibling of a reply: the same up to a token, another one in its place, and from there on new ones.

        token_index: from 0, in the reply's tokens as `tokens.of_reply` gives them. token_id: one of its
            alternatives, or any other of the model's; the written one goes on anew behind it.
        Raises, with nothing stored: CannotBranch, EngineUnavailable also while the model is loading, ReplyRunning,
        PromptTooLong.
        """
        with self._sending:
            self._check_usable()
            if not self._host.loaded.done():
                raise EngineUnavailable("the model is still loading: branch when it is ready")
            chat, tree = self._chats.read(chat_id)
            reply, store = reply_in(tree, message_id), self._stores.of(chat_id)
            chat = under_variant(chat, reply)
            new = new_branch(
                self._host.loaded.result(),
                chat,
                tree,
                reply,
                store.token_logprobs(message_id),
                token_index,
                token_id,
            )
            [draft] = store.add_turn(chat_id, reply.parent_id, None, [new]).replies
            self._desk.branch(chat, tree.path(reply.parent_id), draft, params_of(new), new.logprobs)
            return draft

    def miss_reason(self, chat_id: str, message_id: int) -> MissReason | None:
        """Why the prompt of a reply found no more in the cache; of one that is being written too, once it has begun.

        None for what a person wrote, and for replies of which that isn't known: imported ones, for instance.
        """
        message = self.message(chat_id, message_id)
        running = next((reply for reply in self._desk.replies(chat_id) if reply.message_id == message.id), None)
        reason = None if running is None else running.miss
        return reason or self._stores.of(chat_id).miss_reason(message.id)

    def stop(self, chat_id: str, message_id: int | None = None) -> int:
        """Stops one reply, or all of a chat; gives how many were running. They end as "stopped" in a moment."""
        return self._desk.stop(chat_id, None if message_id is None else {message_id})

    def running(self, chat_id: str) -> tuple[Message, ...]:
        """The replies that are being written in a chat, as far as they have come."""
        return tuple(reply.message() for reply in self._desk.running(chat_id))

    def running_chat_ids(self) -> frozenset[str]:
        return frozenset(reply.chat_id for reply in self._desk.running())

    def watch(self, chat_id: str, *, until_idle: bool = False) -> Watcher[ChatEvent]:
        """Follows a chat: first a ChatChanged, then every running reply from its start, then what happens.

        until_idle: it ends by itself when no reply of the chat is running any more and everything was told.
        A screen that reads the tree at each ChatChanged, after it began to watch, misses nothing.
        """
        return self._watchers.watch_chat(chat_id, until_idle=until_idle)

    def watch_app(self) -> Watcher[AppEvent]:
        """Follows the list of chats and the engine: first how the engine stands, then what happens."""
        return self._watchers.watch_app(lambda: self._host.status)

    # The engine

    @property
    def engine_host(self) -> EngineHost:
        """For programs that use the engine beside the chats."""
        return self._host

    @property
    def engine_status(self) -> EngineStatus:
        return self._host.status

    def model_notice(self, chat_id: str) -> ModelNotice | None:
        """That another model answers in this chat than the one that it names; None where it is that one, or none."""
        return model_notice(self.chat(chat_id), self._host.config.model)

    def switch_model(self, model: str, *, force: bool = False) -> None:
        """Closes the engine and loads another model for all chats, in the background; they keep what they name.

        Also loads the same model again after it failed. A model that has to be downloaded first is, while the other one
        goes on answering; `engine_status.fetch` tells of it, and says why where it can't be taken.

        Raises, and the model that answers stays: InvalidParameter for an empty name; ModelNotFound, ModelUnsupported
        or ModelFileInvalid for what can't be loaded; ModelInUse while replies are being written or other programs use
        the engine, unless `force` ends that.
        """
        self._switch.to_model(model, force=force)

    def use_server(self, server: EngineServer, *, force: bool = False) -> None:
        """Closes the engine and uses that of another process, with the model that it has. Raises ModelInUse."""
        self._switch.to_server(server, force=force)

    def ask_engine(self, query: Query[Result]) -> Future[Result]:
        """Has the engine answer between two steps: snapshots, block events.

        Raises EngineUnavailable unless an engine is there; the future waits for it to load.
        """
        return self._host.call(query)

    # How a turn begins

    def _ask(
        self,
        chat: Chat,
        tree: MessageTree,
        parent_id: int | None,
        text: str,
        n: int | None,
        sampling: SamplingParams | None,
    ) -> Turn:
        text = self._checked_text(tree, parent_id, text)
        sampling = sampling or chat.sampling
        if self._host.loaded.done():
            check_fits(self._host.loaded.result(), chat, text, sampling.max_tokens)
        return self._begin(chat, tree, parent_id, text, sampling.n if n is None else n, sampling)

    def _checked_text(self, tree: MessageTree, parent_id: int | None, text: str) -> str:
        """What may be sent below a message; raises EmptyMessage, ReplyRunning, EngineUnavailable."""
        if not text.strip():
            raise EmptyMessage("the message is empty: write something first")
        if parent_id is not None:
            find_whole(tree, parent_id)
        self._check_usable()
        return text

    def _begin(
        self, chat: Chat, tree: MessageTree, parent_id: int | None, text: str | None, n: int, sampling: SamplingParams
    ) -> Turn:
        """The turn in the store, then on the desk; `text` is None for a retry."""
        self._check_usable()
        num_siblings = len(tree.children(parent_id)) if text is None else 0
        params = request_params(sampling, n, num_siblings)
        if n > (most := self._host.config.max_num_seqs):
            running = counted(most, "reply runs", "replies run")
            raise InvalidParameter(f"n is {n}, but at most {running} at once: ask for fewer")
        replies = new_replies(self._host.config.model, params)
        turn = self._stores.of(chat.id).add_turn(chat.id, parent_id, text, replies)
        path = [*tree.path(parent_id), *([turn.user_message] if turn.user_message is not None else [])]
        self._desk.write(chat, path, turn.replies, params)
        return turn

    def _check_usable(self) -> None:
        if self._is_closed:
            raise service_closed()
        self._host.check_usable()
