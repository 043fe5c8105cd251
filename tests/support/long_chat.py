"""A chat of hundreds of messages, as people who never begin a new one have."""

from datetime import UTC, datetime

from paged_chat.app.chats import Chat, ReplyCost
from paged_chat.app.imported_chat import ImportedChat, ImportedMessage
from paged_chat.app.store.store import Store

REPLY = """Here is answer {i}, in a few sentences that are long enough to be broken over two lines of a terminal.

- first point of {i}
- second point

```python
def answer_{i}():
    return {i}
```
"""


def add_long_chat(store: Store, num_messages: int) -> Chat:
    """Questions "question 0", "question 2" and so on, each with a reply of a few paragraphs and some code."""
    now = datetime.now(UTC)
    cost = ReplyCost(
        num_cached_tokens=400, num_computed_tokens=20, num_generated_tokens=60, ttft_ms=48.0, tokens_per_s=118.0
    )
    messages = tuple(
        ImportedMessage(
            parent=i - 1 if i else None,
            role="assistant" if i % 2 else "user",
            text=REPLY.format(i=i) if i % 2 else f"question {i}",
            model="fake-1b" if i % 2 else None,
            cost=cost if i % 2 else None,
            finish_reason="stop" if i % 2 else None,
            created_at=now,
        )
        for i in range(num_messages)
    )
    [chat] = store.import_chats(
        [
            ImportedChat(
                title=f"{num_messages} messages",
                messages=messages,
                active_leaf=num_messages - 1,
                created_at=now,
                updated_at=now,
            )
        ]
    )
    return chat
