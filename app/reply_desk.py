"""All replies that are being written: from a prompt to the last word in the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from paged_chat.engine.errors import PagedChatError
from paged_chat.engine.request import SamplingParams

from .background import Background
from .chats import Chat, Message
from .engine_host import EngineHost, LoadedEngine
from .prompts import make_prompt
from .reply_job import ReplyJob
from .reply_saver import ReplySaver
from .resume_point import resume_point
from .running_reply import RunningReply
from .store import Store

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
        on_saved: Callable[[RunningReply], None],
    ) -> None:
        """on_change: hears of every token, on the engine's thread. on_saved: hears when an end is in the store."""
        self._host = host
        self._on_change = on_change
        self._on_saved = on_saved
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

        is_continued: the draft goes on where its text ends.
        """
        replies = [RunningReply(draft, sample, self._take_change) for sample, draft in enumerate(drafts)]
        job = ReplyJob(replies, params, salt=chat.user)
        with self._lock:
            self._jobs |= dict.fromkeys(replies, job)
        for reply in replies:
            self._saver.add(reply)
            self._on_change(reply)

        def start(loaded: LoadedEngine) -> None:
            if is_continued:
                [reply], [draft] = replies, drafts
                reply.resume(resume_point(loaded.engine, draft, loaded.model))
                prompt = make_prompt(loaded, chat, [*path, reply.message()], continue_reply=True)
            else:
                prompt = make_prompt(loaded, chat, path)
            job.start(loaded.served, prompt.token_ids, prompt.plan)

        def look(started: Future[None]) -> None:
            if (error := started.exception()) is not None:
                job.fail(_said(error))

        self._background.after(self._host.loaded, start).add_done_callback(look)

    def stop(self, chat_id: str | None = None, message_ids: Sequence[int] | None = None) -> int:
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
        """Those that grow."""
        return [reply for reply in self.replies(chat_id) if not reply.has_ended]

    def close(self) -> None:
        """Stops every reply and saves it; what the engine doesn't end in time ends with what it has."""
        self._background.close()
        self.stop()
        self._saver.close(STOP_S, SAVE_S)

    def _take_change(self, reply: RunningReply) -> None:
        self._on_change(reply)
        if reply.has_ended:
            self._saver.finish(reply)
            if reply.has_failed:
                self._host.report_fault()

    def _forget(self, reply: RunningReply) -> None:
        with self._lock:
            del self._jobs[reply]
        self._on_saved(reply)


def _said(error: BaseException) -> str:
    if isinstance(error, PagedChatError):
        return str(error)
    logger.error("a reply could not be begun", exc_info=error)
    return f"{type(error).__name__}: {error}"
