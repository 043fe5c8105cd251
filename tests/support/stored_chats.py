"""Two chats in a home: a tree about Lisbon, and one question about a museum."""

from contextlib import closing

import chat_samples
from paged_chat.app.chats import MessageTree
from paged_chat.app.imported_chat import ImportedChat
from paged_chat.app.store.store import Store, default_path

TREE = MessageTree(
    [
        chat_samples.message(1, None, "three days, no museums"),
        chat_samples.reply(2, 1, "Day one: Alfama."),
        chat_samples.reply(4, 1, "Belém first", status="stopped", cost=None),
        chat_samples.message(5, 4, "and the second?"),
    ]
)
CHAT = chat_samples.chat(TREE, tags=("travel",), is_pinned=True, system_prompt="Be brief.", active_leaf_id=5)
MUSEUM_TREE = MessageTree([chat_samples.message(1, None, "Which museum is quiet on a Monday?")])
MUSEUM = chat_samples.chat(MUSEUM_TREE, title="Museum", has_own_title=True)


def all_chats() -> list[ImportedChat]:
    """What is in the home now, without ids, by title."""
    with closing(Store(default_path())) as store:
        chats = store.chats(archived=None)
        return sorted((chat_samples.imported(chat, store.tree(chat.id)) for chat in chats), key=lambda chat: chat.title)
