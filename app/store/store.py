"""Everything that people said and were answered, on disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from sqlite3 import Connection
from types import TracebackType
from typing import Self, TypeVar, Unpack

from paged_chat.engine.errors import PagedChatError
from paged_chat.engine.request import FinishReason, SamplingParams

from ..chats import UNTITLED, Chat, KeptLogprobs, Message, MessageTree, NewReply, ReplyCost, Turn
from ..imported_chat import ImportedChat
from ..transcript.miss_reason import MissReason
from . import (
    chat_copies,
    chat_search,
    chat_table,
    deletion,
    drafts,
    message_table,
    miss_reasons,
    presets,
    store_stats,
    token_logprobs,
)
from .chat_search import SearchHit
from .chat_table import ChatChanges
from .database import IN_MEMORY, StorePath
from .default_path import default_path as default_path
from .drafts import FinalStatus
from .readers import Readers
from .rows import now_to_db
from .store_stats import StoreStats
from .writer import Writer
from .writer_id import new_writer_id

Result = TypeVar("Result")


class Store:
    """The chats of one database; any thread may call any method, and another process may have the same file open.

    Always: what a method that writes has returned is committed, all of it, and survives the end of the process.
            Where it raises instead, nothing of it is there, and it can be called again.
            Reading waits for no one.

    Raises StoreBusy where another process holds the database for long, DiskFull, StoreDamaged, StoreUnavailable.
    """

    def __init__(self, path: StorePath) -> None:
        """Opens the database, makes it where there is none, migrates an older one after copying it.

        path: ":memory:" keeps chats until the store is closed and no longer; they are marked as temporary, and the ids
            of their messages are never those of a message on disk.
        Raises StoreTooNew for one of a newer schema, without having written anything.
        """
        self.path = path
        self._id = new_writer_id()
        self._writer = Writer(path)
        self._readers = None if path == IN_MEMORY else Readers(self._writer.file)
        if path == IN_MEMORY:
            self._write(message_table.number_as_temporary)

    def close(self) -> None:
        """Stops the drafts that this store wrote, removes what it deleted, and lets go of the file."""
        # Neither is lost where the disk is full now: the next store to be opened and closed does it.
        with suppress(PagedChatError):
            self._write(lambda db: drafts.stop_all_of(db, self._id))
            self.purge_deleted()
        if self._readers is not None:
            self._readers.close()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Chats

    def create_chat(
        self,
        *,
        user: str = "",
        title: str = UNTITLED,
        system_prompt: str | None = None,
        model: str | None = None,
        sampling: SamplingParams | None = None,
        tags: Sequence[str] = (),
    ) -> Chat:
        """An empty chat; one without a title of its own gets the first line of its first message as its title."""

        def create(db: Connection) -> Chat:
            now = now_to_db(db, user)
            chat_id = chat_table.insert(
                db,
                user=user,
                title=title,
                has_own_title=title != UNTITLED,
                tags=tuple(tags),
                system_prompt=system_prompt,
                model=model,
                sampling=sampling or SamplingParams(),
                created_at=now,
                updated_at=now,
            )
            return chat_table.get(db, chat_id)

        return self._write(create)

    def chat(self, chat_id: str, user: str | None = None) -> Chat:
        """Raises ChatNotFound; where a user is named, also for a chat of somebody else."""
        return self._read(lambda db: chat_table.get(db, chat_id, user))

    def chats(
        self,
        *,
        user: str = "",
        archived: bool | None = False,
        tag: str | None = None,
        limit: int | None = None,
        before: Chat | None = None,
    ) -> list[Chat]:
        """A user's chats: pinned ones first, then those with the newest messages.

        archived: only such, none of them, or (None) both.
        before: the last chat of the page before this one.
        """
        return self._read(
            lambda db: chat_table.list_chats(db, user=user, archived=archived, tag=tag, limit=limit, before=before)
        )

    def tags(self, user: str = "") -> list[str]:
        """Every tag of a user's chats, in alphabetical order."""
        return self._read(lambda db: chat_table.list_tags(db, user))

    def update_chat(self, chat_id: str, **changes: Unpack[ChatChanges]) -> Chat:
        """Changes what is named and nothing else; raises ChatNotFound."""

        def update(db: Connection) -> Chat:
            chat_table.update(db, chat_id, changes)
            return chat_table.get(db, chat_id)

        return self._write(update)

    def set_active_leaf(self, chat_id: str, message_id: int) -> Chat:
        """Shows the path that ends with a message; raises ChatNotFound, MessageNotFound."""

        def show(db: Connection) -> Chat:
            chat_table.get(db, chat_id)
            message_table.get_in_chat(db, chat_id, message_id)
            chat_table.touch(db, chat_id, active_leaf_id=message_id)
            return chat_table.get(db, chat_id)

        return self._write(show)

    def version(self, chat_id: str) -> int:
        """Counts the changes to a chat and its messages; raises ChatNotFound. A screen with another number is stale."""
        return self.chat(chat_id).version

    def list_version(self, beside: Collection[str] = ()) -> tuple[int, int]:
        """Another value after any change to any chat but those `beside`. A list shown with another one is stale."""
        return self._read(lambda db: chat_table.list_version(db, beside=beside))

    def delete_chat(self, chat_id: str) -> None:
        """Raises ChatNotFound. `restore_chat` brings it back until this store is closed."""
        self._write(lambda db: deletion.delete_chat(db, chat_id, by=self._id))

    def restore_chat(self, chat_id: str) -> Chat:
        """Undoes `delete_chat`; raises ChatNotFound."""
        return self._write(lambda db: deletion.restore_chat(db, chat_id))

    def purge_deleted(self) -> None:
        """Removes for good what this store deleted, and what stores of dead processes did."""
        self._write(lambda db: deletion.purge(db, of=self._id))

    # Messages

    def tree(self, chat_id: str) -> MessageTree:
        """All messages of a chat; raises ChatNotFound."""

        def read(db: Connection) -> MessageTree:
            chat_table.get(db, chat_id)
            return message_table.tree(db, chat_id)

        return self._read(read)

    def message(self, message_id: int) -> Message:
        """Raises MessageNotFound."""
        return self._read(lambda db: message_table.get(db, message_id))

    def add_turn(self, chat_id: str, parent_id: int | None, text: str | None, replies: Sequence[NewReply]) -> Turn:
        """Adds what a person wrote below a message (None: at the top), a draft for each reply, and shows the first.

        text: None adds replies alone, below the person's message `parent_id`: a retry.
        Raises ChatNotFound, MessageNotFound.
        """
        return self._write(lambda db: message_table.add_turn(db, chat_id, parent_id, text, replies, writer=self._id))

    def save_draft(self, message_id: int, text: str, token_ids: Sequence[int], logprobs: KeptLogprobs = ()) -> None:
        """What there is of a reply so far; raises MessageNotFound, ReplyFinished."""
        self._write(
            lambda db: drafts.save(db, message_id, text=text, token_ids=token_ids, logprobs=logprobs, writer=self._id)
        )

    def finish_reply(
        self,
        message_id: int,
        *,
        text: str,
        token_ids: Sequence[int],
        status: FinalStatus,
        finish_reason: FinishReason | None,
        cost: ReplyCost | None,
        error: str | None = None,
        logprobs: KeptLogprobs = (),
        miss: MissReason | None = None,
    ) -> Message:
        """The whole reply and what it took; it doesn't change any more. Raises MessageNotFound, ReplyFinished.

        logprobs: one for each token, or none at all.
        miss: why its prompt found no more in the cache.
        """
        return self._write(
            lambda db: drafts.finish(
                db,
                message_id,
                text=text,
                token_ids=token_ids,
                logprobs=logprobs,
                status=status,
                finish_reason=finish_reason,
                cost=cost,
                error=error,
                miss=miss,
                writer=self._id,
            )
        )

    def token_logprobs(self, message_id: int) -> KeptLogprobs:
        """How likely each token of a reply was, with its alternatives; empty where that wasn't kept."""
        return self._read(lambda db: token_logprobs.get(db, message_id))

    def miss_reason(self, message_id: int) -> MissReason | None:
        """Why a reply's prompt found no more in the cache; None where that wasn't kept."""
        return self._read(lambda db: miss_reasons.get(db, message_id))

    def reopen_reply(self, message_id: int) -> Message:
        """Makes a reply that was cut short a draft again, which this store goes on writing.

        Raises MessageNotFound, CannotContinue.
        """
        return self._write(lambda db: drafts.reopen(db, message_id, writer=self._id))

    def stop_orphaned_drafts(self) -> int:
        """Marks as stopped what dead processes were writing, and gives the number of such replies."""
        return self._write(drafts.stop_orphans)

    def delete_message(self, message_id: int) -> Chat:
        """Deletes a message and what hangs below it, to be brought back until close; raises MessageNotFound."""
        return self._write(lambda db: deletion.delete_message(db, message_id, by=self._id))

    def restore_message(self, chat_id: str, message_id: int) -> Chat:
        """Undoes `delete_message`; raises ChatNotFound, MessageNotFound."""
        return self._write(lambda db: deletion.restore_message(db, chat_id, message_id))

    # Whole chats

    def fork_chat(self, chat_id: str, message_id: int) -> Chat:
        """A new chat that begins with the path up to a message, token ids and costs too.

        Raises ChatNotFound, MessageNotFound.
        """
        return self._write(lambda db: chat_table.get(db, chat_copies.fork(db, chat_id, message_id)))

    def import_chats(self, chats: Iterable[ImportedChat], user: str = "") -> list[Chat]:
        """Adds all of the chats or, where one can't be read to its end, none."""
        # Reading them may take long or fail: that is over before anything is written.
        all_chats = tuple(chats)
        return self._write(lambda db: [chat_table.get(db, chat_copies.add(db, chat, user)) for chat in all_chats])

    def search(self, query: str, *, user: str = "", limit: int = 50) -> list[SearchHit]:
        """The newest places in a user's chats that hold every word of the query, titles first."""
        return self._read(lambda db: chat_search.search(db, query, user=user, limit=limit))

    def stats(self, user: str = "") -> StoreStats:
        """What a user's chats hold and what their replies took."""
        return self._read(lambda db: store_stats.read_stats(db, user))

    # Presets

    def system_prompts(self) -> dict[str, str]:
        """Texts by name, in alphabetical order."""
        return self._read(presets.system_prompts)

    def save_system_prompt(self, name: str, text: str) -> None:
        """Keeps a text under a name, in place of what had that name."""
        self._write(lambda db: presets.save_system_prompt(db, name, text))

    def delete_system_prompt(self, name: str) -> None:
        """Without effect where there is none of that name."""
        self._write(lambda db: presets.delete_system_prompt(db, name))

    def sampling_presets(self) -> dict[str, SamplingParams]:
        """Settings by name, in alphabetical order."""
        return self._read(presets.sampling_presets)

    def save_sampling_preset(self, name: str, sampling: SamplingParams) -> None:
        """Keeps settings under a name, in place of what had that name."""
        self._write(lambda db: presets.save_sampling_preset(db, name, sampling))

    def delete_sampling_preset(self, name: str) -> None:
        """Without effect where there is none of that name."""
        self._write(lambda db: presets.delete_sampling_preset(db, name))

    # How all of them reach the database

    def _read(self, read: Callable[[Connection], Result]) -> Result:
        if self._readers is None:  # a database in memory has one connection
            return self._writer.run(read)
        with self._readers.snapshot() as connection:
            return read(connection)

    def _write(self, write: Callable[[Connection], Result]) -> Result:
        return self._writer.run(write)
