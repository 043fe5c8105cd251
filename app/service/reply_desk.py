"""All replies that are being written: from a prompt to the last word in the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future

from paged_chat.engine.errors import PagedChatError
from paged_chat.engine.request import SamplingParams

from ..chats import Chat, Message
from ..store.store import Store
from .background import Background
from .engine_host import EngineHost, LoadedEngine
from .prompts import look_up
from .reply_job import ReplyJob
from .reply_saver import ReplySaver
from .resume_point import ResumePoint
from .running_reply import RunningReply

STOP_S = 0.5  # for the step that is being computed when the service closes
SAVE_S = 1.0

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
        *,
        is_continued: bool = False,
    ) -> None:
        """Has the drafts written as replies to the path, side by side, once the model is loaded.

        is_continued: there is one draft, and it goes on where its text ends.
        """
        replies = [RunningReply(draft, sample, self._take_change) for sample, draft in enumerate(drafts)]
        job = ReplyJob(replies, params, salt=chat.user)
        with self._lock:
            self._jobs |= dict.fromkeys(replies, job)
        for reply in replies:
            self._saver.add(reply)
        self._on_turn(chat.id)

        def start(loaded: LoadedEngine) -> None:
            whole_path = [*path, *drafts] if is_continued else path
            context = loaded.transcript.encode(
                chat.system_prompt, whole_path, continue_reply=is_continued, max_tokens=params.max_tokens
            )
            if is_continued:
                replies[0].resume(ResumePoint(context.reply_token_ids, loaded.engine.decode))
            job.start(loaded.served, context.token_ids, look_up(loaded, chat, context))

        def look(started: Future[None]) -> None:
            if (error := started.exception()) is not None:
                job.fail(_said(error))

        self._background.after(self._host.loaded, start).add_done_callback(look)

    def stop(self, chat_id: str | None = None, message_ids: Collection[int] | None = None) -> int:
        """Stops the replies of a chat, or some of them, or all there are; gives how many were running."""
        with self._lock:
            jobs = dict(self._jobs)
        return sum(
            job.stop(reply)
            for reply, job in jobs.items()
            if chat_id in (None, reply.chat_id) and (message_ids is None or reply.message_id in message_ids)
        )

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


def _said(error: BaseException) -> str:
    if isinstance(error, PagedChatError):
        return str(error)
    logger.error("a reply could not be begun", exc_info=error)
    return f"{type(error).__name__}: {error}"
