"""Keeps running replies on the disk: drafts while they grow, the whole reply at its end, again if that failed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import cast

from paged_chat.engine.errors import PagedChatError

from ..errors import ChatNotFound, MessageNotFound, ReplyFinished, StoreBusy, words_of
from ..store.drafts import FinalStatus
from ..store.store import Store
from .running_reply import RunningReply

DRAFT_INTERVAL_S = 0.5
CLOSE_TOLD_AFTER_S = 1.0

logger = logging.getLogger(__name__)


class ReplySaver:
    """One thread saves all replies, so that neither the engine nor a screen waits for a disk.

    Always: a reply is kept from its start until its end is in the store, or the store has no place for it;
            what came more than a second ago is in the store, unless the store refuses.
    """

    def __init__(self, store_of: Callable[[str], Store], on_saved: Callable[[RunningReply], None]) -> None:
        """store_of: where a chat lives, by its id. on_saved: hears of each reply that is kept no longer."""
        self._store_of = store_of
        self._on_saved = on_saved
        self._num_saved_tokens: dict[RunningReply, int] = {}  # of each reply that is kept
        self._ended: set[RunningReply] = set()
        self._changed = threading.Condition()
        self._give_up_at: float | None = None  # time.monotonic(), once it is closing
        self._thread = threading.Thread(target=self._run, name="paged-chat saver", daemon=True)
        self._thread.start()

    def add(self, reply: RunningReply) -> None:
        with self._changed:
            self._num_saved_tokens[reply] = reply.num_tokens
            self._changed.notify_all()

    def finish(self, reply: RunningReply) -> None:
        """It has ended. That may come late: after it was given up, the engine may still have something to say of it."""
        with self._changed:
            if reply in self._num_saved_tokens:
                self._ended.add(reply)
                self._changed.notify_all()

    def close(self, grace_s: float, timeout_s: float) -> None:
        """Gives replies `grace_s` to end, stops the others, and saves all once more.

        timeout_s: for the saving. A disk may be slow; and as long as another program holds the database, it is tried
            again. Whoever waits is told so.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ended.issuperset(self._num_saved_tokens), grace_s)
            kept = list(self._num_saved_tokens)
        for reply in kept:
            reply.end("stopped")
        with self._changed:
            self._give_up_at = time.monotonic() + timeout_s
            self._changed.notify_all()
        self._thread.join(min(CLOSE_TOLD_AFTER_S, timeout_s))
        if self._thread.is_alive():
            logger.warning(
                "the chats can't be written now, another program may hold them: waiting up to %g s to save the replies "
                "that were being written",
                timeout_s,
            )
            self._thread.join(timeout_s - CLOSE_TOLD_AFTER_S)
        for reply in self._num_saved_tokens:
            logger.error("reply %d of chat %s isn't saved whole", reply.message_id, reply.chat_id)

    def _run(self) -> None:
        drafts_due_at = time.monotonic()
        is_over = False
        while not is_over:
            with self._changed:
                if not self._has_work():
                    self._changed.wait(self._patience(drafts_due_at))
                give_up_at = self._give_up_at
                kept = {reply: reply in self._ended for reply in self._num_saved_tokens}
            are_drafts_due = time.monotonic() >= drafts_due_at
            if are_drafts_due:
                drafts_due_at = time.monotonic() + DRAFT_INTERVAL_S
            is_busy = False
            for reply, has_ended in kept.items():
                if has_ended and (are_drafts_due or give_up_at is not None or not reply.is_unsaved):
                    is_busy |= self._save(reply, self._finish)
                elif not has_ended and are_drafts_due:
                    self._save(reply, self._save_draft)
            is_over = give_up_at is not None and not (is_busy and time.monotonic() < give_up_at)

    def _has_work(self) -> bool:
        return self._give_up_at is not None or any(not reply.is_unsaved for reply in self._ended)

    def _patience(self, drafts_due_at: float) -> float | None:
        """Without a reply there is nothing to wake for."""
        return max(0.0, drafts_due_at - time.monotonic()) if self._num_saved_tokens else None

    def _save(self, reply: RunningReply, save: Callable[[RunningReply], None]) -> bool:
        """Whether another program was in the way."""
        try:
            save(reply)
        except (MessageNotFound, ChatNotFound, ReplyFinished) as error:
            # Purged, or another process has taken it for orphaned and goes on with it.
            logger.warning("reply %d of chat %s is given up: %s", reply.message_id, reply.chat_id, error)
            reply.end("stopped")
            self._forget(reply)
        except PagedChatError as error:
            reply.mark_unsaved(words_of(error))
            return isinstance(error, StoreBusy)
        except Exception as error:
            logger.exception("reply %d of chat %s can't be saved; it is tried again", reply.message_id, reply.chat_id)
            reply.mark_unsaved(words_of(error))
        return False

    def _save_draft(self, reply: RunningReply) -> None:
        message, logprobs = reply.unsaved()
        token_ids = message.token_ids or ()
        if message.status == "draft" and (len(token_ids) != self._num_saved_tokens[reply] or reply.is_unsaved):
            self._store_of(reply.chat_id).save_draft(reply.message_id, message.text, token_ids, logprobs)
            self._num_saved_tokens[reply] = len(token_ids)
            reply.mark_saved(whole=False)

    def _finish(self, reply: RunningReply) -> None:
        message, logprobs = reply.unsaved()
        self._store_of(reply.chat_id).finish_reply(
            reply.message_id,
            text=message.text,
            token_ids=message.token_ids or (),
            logprobs=logprobs,
            status=cast(FinalStatus, message.status),
            finish_reason=message.finish_reason,
            cost=message.cost,
            error=message.error,
            miss=reply.miss,
        )
        self._forget(reply)

    def _forget(self, reply: RunningReply) -> None:
        with self._changed:
            del self._num_saved_tokens[reply]
            self._ended.discard(reply)
        self._on_saved(reply)
