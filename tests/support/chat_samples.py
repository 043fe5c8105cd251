"""Chats with trees, by hand and by Hypothesis, as a store gives them."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from paged_chat.app.chats import Chat, Message, MessageTree, ReplyCost, ReplyVariant
from paged_chat.app.imported_chat import ImportedChat, ImportedMessage
from paged_chat.engine.request import SamplingParams

NOON = datetime(2026, 11, 29, 12, 0, 0, 250_000, tzinfo=UTC)


def message(message_id: int, parent_id: int | None, text: str, **fields: object) -> Message:
    """What a person wrote, or, with `role="assistant"`, a reply; a second after the message before."""
    values: dict[str, object] = {
        "id": message_id,
        "chat_id": "c0ffee" + 26 * "0",
        "parent_id": parent_id,
        "role": "user",
        "text": text,
        "created_at": NOON + timedelta(seconds=message_id),
    }
    return Message(**(values | fields))  # type: ignore[arg-type]


def outline(chat: ImportedChat) -> list[tuple[int | None, str, str]]:
    """Who says what below which message."""
    return [(message.parent, message.role, message.text) for message in chat.messages]


def cost(
    num_cached: int,
    num_computed: int,
    num_generated: int,
    *,
    ttft_ms: float | None = None,
    tokens_per_s: float | None = None,
) -> ReplyCost:
    """In tokens; times as a reply has them that nobody timed."""
    return ReplyCost(
        num_cached_tokens=num_cached,
        num_computed_tokens=num_computed,
        num_generated_tokens=num_generated,
        ttft_ms=ttft_ms,
        tokens_per_s=tokens_per_s,
    )


def reply(message_id: int, parent_id: int, text: str, **fields: object) -> Message:
    """A reply with all that is kept of one."""
    values: dict[str, object] = {
        "role": "assistant",
        "token_ids": (26, 77, 2),
        "model": "smollm2-135m",
        "sampling": SamplingParams(temperature=0.7, seed=7),
        "cost": ReplyCost(
            num_cached_tokens=212, num_computed_tokens=31, num_generated_tokens=3, ttft_ms=48.5, tokens_per_s=118.25
        ),
        "finish_reason": "stop",
    }
    return message(message_id, parent_id, text, **(values | fields))


def chat(tree: MessageTree, **fields: object) -> Chat:
    """A chat of which the newest leaf is shown."""
    values: dict[str, object] = {
        "id": "c0ffee" + 26 * "0",
        "title": "Trip to Lisbon",
        "active_leaf_id": max((message.id for message in tree), default=None),
        "created_at": NOON,
        "updated_at": NOON + timedelta(minutes=1),
    }
    return Chat(**(values | fields))  # type: ignore[arg-type]


def imported(chat: Chat, tree: MessageTree) -> ImportedChat:
    """The chat as it should come back from a file: all of it but whose it is, with places for ids."""
    messages = sorted(tree, key=lambda message: message.id)
    index_of = {message.id: index for index, message in enumerate(messages)}
    return ImportedChat(
        title=chat.title,
        has_own_title=chat.has_own_title,
        is_pinned=chat.is_pinned,
        is_archived=chat.is_archived,
        tags=chat.tags,
        system_prompt=chat.system_prompt,
        model=chat.model,
        sampling=chat.sampling,
        messages=tuple(
            ImportedMessage(
                parent=None if message.parent_id is None else index_of[message.parent_id],
                role=message.role,
                text=message.text,
                token_ids=message.token_ids,
                model=message.model,
                sampling=message.sampling,
                variant=message.variant,
                cost=message.cost,
                finish_reason=message.finish_reason,
                status=message.status,
                error=message.error,
                created_at=message.created_at,
            )
            for message in messages
        ),
        active_leaf=None if chat.active_leaf_id is None else index_of[chat.active_leaf_id],
        created_at=chat.created_at,
        updated_at=chat.updated_at,
    )


# Lines that mean something to Markdown, HTML, JSON, or our own files.
MARKUP_LINES = r"""
```
````python
~~~
# Title
## You
---
===
> quoted
- item
  ```
    code
<!--
-->
<!-- paged-chat:message 1 -->
\<!-- paged-chat:chat 1 -->
<!-- paged-chat:record
<pre>
<?php
<![CDATA[
<!DOCTYPE html>
<div>
</div>
<script>
{"id": 1}
\\
&amp;
[a]: b
""".splitlines()
TRICKY_LINES = [*MARKUP_LINES, " ", "\t", "\r"]

# A store holds no NUL and no half of a surrogate pair.
characters = st.characters(codec="utf-8", exclude_characters="\0")
names = st.text(characters)
any_text = names | st.lists(st.sampled_from(TRICKY_LINES) | st.text(characters, max_size=5), max_size=8).map("\n".join)
times = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC))
samplings = st.builds(
    SamplingParams,
    temperature=st.floats(0, 100),
    top_p=st.floats(0, 1, exclude_min=True),
    max_tokens=st.none() | st.integers(1, 2**31 - 1),
    seed=st.none() | st.integers(0, 2**63 - 1),
    stop=st.lists(st.text(characters, min_size=1), max_size=2),
    stop_token_ids=st.lists(st.integers(0, 2**31 - 1), max_size=2),
    ignore_eos=st.booleans(),
)
costs = st.builds(
    ReplyCost,
    num_cached_tokens=st.integers(0, 2**40),
    num_computed_tokens=st.integers(0, 2**40),
    num_generated_tokens=st.integers(0, 2**40),
    ttft_ms=st.none() | st.floats(0, 1e9),
    tokens_per_s=st.none() | st.floats(0, 1e9),
)


@st.composite
def trees(draw: st.DrawFn, max_size: int = 8) -> MessageTree:
    """Any tree: several roots, siblings, runs of one role."""
    ids = sorted(draw(st.sets(st.integers(1, 10**6), max_size=max_size)))
    return MessageTree(
        Message(
            id=message_id,
            chat_id="c0ffee" + 26 * "0",
            parent_id=draw(st.none() | st.sampled_from(ids[:index])) if index else None,
            role=draw(st.sampled_from(("user", "assistant"))),
            text=draw(any_text),
            token_ids=draw(st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)),
            model=draw(st.none() | names),
            sampling=draw(st.none() | samplings),
            variant=draw(st.none() | st.builds(ReplyVariant, any_text, st.none() | any_text)),
            cost=draw(st.none() | costs),
            finish_reason=draw(st.sampled_from((None, "stop", "length", "abort", "error"))),
            status=draw(st.sampled_from(("draft", "done", "stopped", "failed"))),
            error=draw(st.none() | any_text),
            created_at=draw(times),
        )
        for index, message_id in enumerate(ids)
    )


@st.composite
def chats(draw: st.DrawFn) -> tuple[Chat, MessageTree]:
    """Any chat and its tree."""
    tree = draw(trees())
    ids = [message.id for message in tree]
    chat = Chat(
        id=draw(st.uuids()).hex,
        user=draw(names),
        title=draw(any_text),
        has_own_title=draw(st.booleans()),
        is_pinned=draw(st.booleans()),
        is_archived=draw(st.booleans()),
        tags=tuple(draw(st.lists(names, max_size=3, unique=True))),
        system_prompt=draw(st.none() | any_text),
        model=draw(st.none() | names),
        sampling=draw(samplings),
        active_leaf_id=draw(st.none() | st.sampled_from(ids)) if ids else None,
        version=draw(st.integers(0, 100)),
        created_at=draw(times),
        updated_at=draw(times),
    )
    return chat, tree
