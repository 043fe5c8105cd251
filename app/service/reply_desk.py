"""All replies that are being written: from a prompt to the last word in the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import TypeAlias

from paged_chat.engine.errors import PagedChatError
from paged_chat.engine.request import SamplingParams

from ..chats import Chat, KeptLogprobs, Message
from ..errors import words_of
from ..store.store import Store
from .background import Background
from .comparing import under_variant
from .engine_host import EngineHost, LoadedEngine
from .prompts import PreparedPrompt, prepared
from .reply_job import ReplyJob
from .reply_saver import ReplySaver
from .resume_point import ResumePoint
from .running_reply import RunningReply

MakePrompt: TypeAlias = Callable[[LoadedEngine], PreparedPrompt]

STOP_S = 0.5  # for the step that is being computed when the service closes
SAVE_S = 40.0  # longer than another program may hold the database without having forgotten it

logger = logging.getLogger(__name__)


class ReplyDesk:
    """Runs the jobs; safe from any thread, and none of its methods but `close` waits for the engine.

    Always: a reply is here from its start until its end is in the store.
    """

    def __init__(
        self,
        host: EngineHost,
        store_of: Callable[[str], Store],
        on_change: Callable[[RunningReply], None],
        on_turn: Callable[[str], None],
    ) -> None:
        """on_change: hears of every token, on the engine's thread, and of each end that may be told.
        on_turn: hears of a chat, by its id, in which replies begin, and when the end of one is in the store.
        """
        self._host = host
        self._on_change = on_change
        self._on_turn = on_turn
        self._lock = threading.Lock()
        self._jobs: dict[RunningReply, ReplyJob] = {}
        self._saver = ReplySaver(store_of, self._forget)
        self._background = Background(num_threads=2)

    def write(
        self,
        chat: Chat,
        path: Sequence[Message],
        drafts: Sequence[Message],
        params: SamplingParams,
    ) -> None:
        """Has the drafts written as replies to the path, side by side, once the model is loaded."""
        self._begin(chat, self._fresh_job(chat, path, drafts, params))

    def compare(self, chat: Chat, path: Sequence[Message], drafts: Sequence[Message]) -> None:
        """Has each draft written under the settings that it bears itself, all at once.

        Those with the same prompt share its blocks: a request waits for those that another one is computing.
        """
        jobs = []
        for draft in drafts:
            assert draft.sampling is not None, "a compared reply has settings of its own"
            jobs.append(self._fresh_job(under_variant(chat, draft), path, [draft], draft.sampling))
        self._begin(chat, *jobs)

    def go_on(
        self, chat: Chat, path: Sequence[Message], draft: Message, params: SamplingParams, logprobs: KeptLogprobs
    ) -> None:
        """Has a reply to the path written on where its text ends.

        logprobs: of what is there of it, as far as they were kept.
        """
        reply = RunningReply(draft, 0, self._take_change, logprobs)
        whole_path = [*path, draft]

        def make_prompt(loaded: LoadedEngine) -> PreparedPrompt:
            context = loaded.transcript.encode(
                chat.system_prompt, whole_path, continue_reply=True, max_tokens=params.max_tokens
            )
            reply.resume(ResumePoint(context.reply_token_ids, loaded.engine.decode))
            return prepared(loaded, chat, whole_path, context)

        self._begin(chat, (ReplyJob([reply], params, salt=chat.user), make_prompt))

    def branch(
        self, chat: Chat, path: Sequence[Message], draft: Message, params: SamplingParams, logprobs: KeptLogprobs
    ) -> None:
        """Has a reply to the path written that begins with the draft's ids, as if they had been drawn."""
        reply = RunningReply(draft, 0, self._take_change, logprobs)
        reply.expect_from_start()
        reply_start = draft.token_ids or ()

        def make_prompt(loaded: LoadedEngine) -> PreparedPrompt:
            context = loaded.transcript.encode(
                chat.system_prompt, path, reply_start=reply_start, max_tokens=params.max_tokens
            )
            return prepared(loaded, chat, path, context, reply_start=reply_start)

        self._begin(chat, (ReplyJob([reply], params, salt=chat.user), make_prompt))

    def _fresh_job(
        self, chat: Chat, path: Sequence[Message], drafts: Sequence[Message], params: SamplingParams
    ) -> tuple[ReplyJob, MakePrompt]:
        """Replies to the path that begin with nothing."""
        replies = [RunningReply(draft, sample, self._take_change) for sample, draft in enumerate(drafts)]

        def make_prompt(loaded: LoadedEngine) -> PreparedPrompt:
            context = loaded.transcript.encode(chat.system_prompt, path, max_tokens=params.max_tokens)
            return prepared(loaded, chat, path, context)

        return ReplyJob(replies, params, salt=chat.user), make_prompt

    def _begin(self, chat: Chat, *jobs: tuple[ReplyJob, MakePrompt]) -> None:
        """Keeps the jobs' replies from now on, and starts one after the other once the model is loaded."""
        with self._lock:
            self._jobs |= {reply: job for job, _ in jobs for reply in job.replies}
        for job, _ in jobs:
            for reply in job.replies:
                self._saver.add(reply)
        self._on_turn(chat.id)

        def start_all(loaded: LoadedEngine) -> None:
            for job, make_prompt in jobs:
                try:
                    job.start(loaded.served, make_prompt(loaded))
                except Exception as error:
                    _fail([job], error)

        def look(started: Future[None]) -> None:
            if (error := started.exception()) is not None:  # there is no engine
                _fail([job for job, _ in jobs], error)

        self._background.after(self._host.loaded, start_all).add_done_callback(look)

    def stop(self, chat_id: str | None = None, message_ids: Collection[int] | None = None) -> int:
        """Stops the replies of a chat, or some of them, or all there are; gives how many were running."""
        with self._lock:
            by_job: dict[ReplyJob, list[RunningReply]] = {}
            for reply, job in self._jobs.items():
                if chat_id in (None, reply.chat_id) and (message_ids is None or reply.message_id in message_ids):
                    by_job.setdefault(job, []).append(reply)
        return sum(job.stop(replies) for job, replies in by_job.items())

    def replies(self, chat_id: str | None = None) -> list[RunningReply]:
        """Those that grow and those whose end isn't stored yet, of one chat or of all."""
        with self._lock:
            return [reply for reply in self._jobs if chat_id in (None, reply.chat_id)]

    def running(self, chat_id: str | None = None) -> list[RunningReply]:
        """Those whose end hasn't been told."""
        return [reply for reply in self.replies(chat_id) if not reply.is_settled]

    def close(self) -> None:
        """Stops every reply and saves it; what the engine doesn't end in time ends with what it has."""
        self._background.close()
        self.stop()
        self._saver.close(STOP_S, SAVE_S)

    def _take_change(self, reply: RunningReply) -> None:
        if reply.is_settled or not reply.has_ended:
            self._on_change(reply)
            return
        self._saver.finish(reply)

    def _forget(self, reply: RunningReply) -> None:
        with self._lock:
            del self._jobs[reply]
        reply.mark_saved(whole=True)
        self._on_turn(reply.chat_id)


def _fail(jobs: Sequence[ReplyJob], error: BaseException) -> None:
    if not isinstance(error, PagedChatError):
        logger.error("a reply could not be begun", exc_info=error)
    for job in jobs:
        job.fail(words_of(error))
