"""People's chats, as screens see them: every change is written to the store and told to whoever watches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Unpack

from paged_chat.engine.request import SamplingParams

from ..chats import UNTITLED, Chat, Message, MessageTree
from ..comparison.comparison import Comparison
from ..comparison.variant import KeptSettings, Variant, WrittenVariant, read_variants
from ..errors import ReplyRunning
from ..imported_chat import ImportedChat, with_sampling
from ..store.chat_copies import whole
from ..store.chat_search import SearchHit
from ..store.chat_table import ChatChanges
from ..store.store_stats import StoreStats
from .comparing import comparison_in
from .default_sampling import DefaultSampling
from .live_chats import LiveChats
from .new_turn import find_whole
from .reply_desk import ReplyDesk
from .stores import Stores
from .watchers import Watchers


class ChatLibrary:
    """Chats and their messages, but for the ways to begin a turn; any thread may call any method.

    Raises ChatNotFound and MessageNotFound, and what a Store raises.
    """

    def __init__(
        self, stores: Stores, watchers: Watchers, desk: ReplyDesk, default_sampling: Callable[[], DefaultSampling]
    ) -> None:
        self._stores = stores
        self._watchers = watchers
        self._desk = desk
        self._default_sampling = default_sampling
        self._chats = LiveChats(stores, desk)
        self._sending = threading.Lock()  # from the look at a chat's leaf to the draft below it

    @property
    def default_sampling(self) -> SamplingParams:
        """How replies of a new chat are drawn: as is recommended for the model that answers now, or generally."""
        return self._default_sampling().sampling

    def sampling_origin(self, sampling: SamplingParams) -> str:
        """Where a chat's settings come from, in words."""
        return self._default_sampling().origin_words(sampling, self.sampling_presets())

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
        """An empty chat. A temporary one is kept in memory, until the service is closed."""
        store = self._stores.open_in_memory() if is_temporary else self._stores.on_disk
        chat = store.create_chat(
            user=user,
            title=title or UNTITLED,
            system_prompt=system_prompt,
            model=model,
            sampling=sampling or self.default_sampling,
            tags=tags,
        )
        if is_temporary:
            self._stores.mark_temporary(chat.id)
        self._watchers.chats_changed()
        return chat

    def unbegun_chat(
        self, *, user: str = "", system_prompt: str | None = None, sampling: SamplingParams | None = None
    ) -> Chat:
        """What `create_chat` would give; it is stored nowhere, and its id is ""."""
        now = datetime.now(UTC)
        return Chat(
            id="",
            user=user,
            title=UNTITLED,
            system_prompt=system_prompt,
            sampling=sampling or self.default_sampling,
            created_at=now,
            updated_at=now,
        )

    def chat(self, chat_id: str, user: str | None = None) -> Chat:
        """With `user` given, somebody else's chat isn't found."""
        return self._chats.chat(chat_id, user)

    def chats(
        self,
        *,
        user: str = "",
        archived: bool | None = False,
        tag: str | None = None,
        limit: int | None = None,
        before: Chat | None = None,
    ) -> list[Chat]:
        """Temporary ones, then pinned ones, then the others, newest first.

        archived: only such, none of them, or (None) both.
        limit, before: a page of so many, after the last chat of the page before; temporary ones come with the first.
        """
        in_memory = self._stores.in_memory
        temporary = []
        if in_memory is not None and before is None:
            temporary = in_memory.chats(user=user, archived=archived, tag=tag)
        return temporary + self._stores.on_disk.chats(user=user, archived=archived, tag=tag, limit=limit, before=before)

    def tags(self, user: str = "") -> list[str]:
        """Every tag of a user's stored chats, in alphabetical order."""
        return self._stores.on_disk.tags(user)

    def version(self, chat_id: str) -> int:
        """Counts every change to the chat; costs little."""
        return self._stores.of(chat_id).version(chat_id)

    def rename(self, chat_id: str, title: str) -> Chat:
        """From now on the chat keeps this title, whatever is said in it; an empty one gives it its first line again."""
        return self.update_chat(chat_id, title=title)

    def update_chat(self, chat_id: str, **changes: Unpack[ChatChanges]) -> Chat:
        """Changes title, is_pinned, is_archived, tags, system_prompt, model or sampling, and nothing else."""
        chat = self._stores.of(chat_id).update_chat(chat_id, **changes)
        self._tell(chat_id)
        return chat

    def delete_chat(self, chat_id: str) -> None:
        """Stops its replies; `restore_chat` brings it back, until the program ends."""
        with self._sending:
            self._stores.of(chat_id).delete_chat(chat_id)
            self._tell(chat_id)
            self._desk.stop(chat_id)

    def restore_chat(self, chat_id: str) -> Chat:
        chat = self._stores.of(chat_id).restore_chat(chat_id)
        self._tell(chat_id)
        return chat

    def fork(self, chat_id: str, message_id: int) -> Chat:
        """A new chat that begins with the path up to this message; that of a temporary chat is temporary.

        Raises ReplyRunning for a reply that still grows.
        """
        find_whole(self.tree(chat_id), message_id)
        store = self._stores.of(chat_id)
        chat = store.fork_chat(chat_id, message_id)
        if chat.is_temporary:
            self._stores.mark_temporary(chat.id)
        self._watchers.chats_changed()
        return chat

    def keep_chat(self, chat_id: str) -> Chat:
        """Stores a temporary chat, all its branches too: gives the stored one, which takes its place under another id.

        Raises ReplyRunning while a reply of it is being written. One that is stored already stays as it is.
        """
        with self._sending:
            chat = self.chat(chat_id)
            if not chat.is_temporary:
                return chat
            if self._desk.running(chat_id):
                raise ReplyRunning("a reply is being written in this chat: wait for its end, or stop it, then keep it")
            [kept] = self.import_chats([whole(chat, self.tree(chat_id))], user=chat.user)
            self._stores.of(chat_id).delete_chat(chat_id)
            self._tell(chat_id)
            return kept

    def import_chats(self, chats: Iterable[ImportedChat], *, user: str = "") -> list[Chat]:
        """Adds all of the chats or, where one can't be read to its end, none."""
        imported = self._stores.on_disk.import_chats(with_sampling(chats, self.default_sampling), user)
        self._watchers.chats_changed()
        return imported

    def search(self, query: str, *, user: str = "", limit: int = 50) -> list[SearchHit]:
        """In titles and messages of stored chats; temporary ones are in no search."""
        return self._stores.on_disk.search(query, user=user, limit=limit)

    def stats(self, user: str = "") -> StoreStats:
        """Of stored chats."""
        return self._stores.on_disk.stats(user)

    # Messages

    def tree(self, chat_id: str) -> MessageTree:
        """The chat's messages; those that are being written with their text as far as it has come."""
        return self._chats.tree(chat_id)

    def message(self, chat_id: str, message_id: int) -> Message:
        return self.tree(chat_id).find(message_id)

    def pick(self, chat_id: str, message_id: int) -> Chat:
        """Shows the path through this message, from there on by the newest: walks between siblings."""
        store = self._stores.of(chat_id)
        tree = store.tree(chat_id)
        chat = store.set_active_leaf(chat_id, tree.newest_leaf(tree.find(message_id).id))
        self._tell(chat_id)
        return chat

    def delete_message(self, chat_id: str, message_id: int) -> Chat:
        """Deletes a message and all that follows from it, and stops what is written there.

        `restore_message` brings it back, until the program ends.
        """
        with self._sending:
            store = self._stores.of(chat_id)
            tree = store.tree(chat_id)
            chat = store.delete_message(tree.find(message_id).id)
            self._tell(chat_id)
            self._desk.stop(chat_id, tree.branch(message_id))
            return chat

    def restore_message(self, chat_id: str, message_id: int) -> Chat:
        chat = self._stores.of(chat_id).restore_message(chat_id, message_id)
        self._tell(chat_id)
        return chat

    # Presets

    def kept_settings(self) -> KeptSettings:
        """Everything that is kept under a name."""
        return KeptSettings(self.sampling_presets(), self.system_prompts())

    def system_prompts(self) -> dict[str, str]:
        """Texts by name, in alphabetical order."""
        return self._stores.on_disk.system_prompts()

    def save_system_prompt(self, name: str, text: str) -> None:
        self._stores.on_disk.save_system_prompt(name, text)

    def delete_system_prompt(self, name: str) -> None:
        self._stores.on_disk.delete_system_prompt(name)

    def sampling_presets(self) -> dict[str, SamplingParams]:
        """Settings by name, in alphabetical order."""
        return self._stores.on_disk.sampling_presets()

    def save_sampling_preset(self, name: str, sampling: SamplingParams) -> None:
        self._stores.on_disk.save_sampling_preset(name, sampling)

    def delete_sampling_preset(self, name: str) -> None:
        self._stores.on_disk.delete_sampling_preset(name)

    # Comparisons

    def variants(self, chat_id: str | None, written: Sequence[WrittenVariant]) -> list[Variant]:
        """What a person wrote as variants of a chat's settings; None is a chat that isn't begun.

        Raises ComparisonRefused with each one that can't be used, and why.
        """
        chat = None if chat_id is None else self.chat(chat_id)
        return read_variants(
            written,
            self.default_sampling if chat is None else chat.sampling,
            None if chat is None else chat.system_prompt,
            self.kept_settings(),
        )

    def comparison(self, chat_id: str, reply_ids: Sequence[int]) -> Comparison:
        """Replies to one question beside each other, as far as they have come, in the order of their making.

        Raises ComparisonRefused for fewer than two, and for messages that don't answer the same one.
        """
        return comparison_in(self.tree(chat_id), reply_ids)

    def _tell(self, chat_id: str) -> None:
        self._watchers.chat_changed(chat_id)
        self._watchers.chats_changed()
