"""Chats as text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

import typer

from ..chats import Chat, Message, MessageTree
from ..counted import counted
from ..service.reply_cost import cost_words
from ..store.chat_search import SearchHit
from ..store.store_stats import StoreStats
from ..terminal_text import harmless

SHORT_ID_LENGTH = 8
MAX_STEM_BYTES = 160  # a file's name holds 255


def list_line(chat: Chat) -> str:
    """A chat in one line: how its id begins, when it was used, its title, its marks."""
    return "  ".join([_short_id(chat), _used_at(chat), _one_line(chat.title), *_marks(chat)])


def shown_chat(chat: Chat, tree: MessageTree) -> Iterator[str]:
    """The path that is shown, message by message, and under each reply what it took."""
    path = tree.path(chat.active_leaf_id)
    yield typer.style(_one_line(chat.title), bold=True)
    others = f", {len(path):,} of them shown" if len(path) < len(tree) else ""
    about = [_short_id(chat), _used_at(chat), f"{counted(len(tree), 'message')}{others}", *_marks(chat)]
    yield typer.style(" · ".join(about), dim=True)
    if chat.system_prompt is not None:
        yield from _paragraph("system", chat.system_prompt)
    for message in path:
        yield from _paragraph(_heading(message, tree), message.text)
        if message.error is not None:
            yield typer.style(_one_line(message.error), dim=True)
        if message.cost is not None:
            yield typer.style(cost_words(message.cost), dim=True)


def search_line(hit: SearchHit) -> str:
    """A place in one line: how the chat's id begins, its title, and the words found in bold."""
    snippet, end = "", 0
    for start, stop in hit.highlights:
        snippet += harmless(hit.snippet[end:start]) + typer.style(harmless(hit.snippet[start:stop]), bold=True)
        end = stop
    snippet += harmless(hit.snippet[end:])
    title = "" if hit.message_id is None else f"{_one_line(hit.chat.title)}: "
    return f"{_short_id(hit.chat)}  {title}{snippet}"


def stats_text(stats: StoreStats) -> str:
    """A line for each figure."""
    num_prompt_tokens = stats.num_cached_tokens + stats.num_computed_tokens
    share = f" ({stats.num_cached_tokens / num_prompt_tokens:.0%})" if num_prompt_tokens else ""
    return "\n".join(
        [
            f"chats             {stats.num_chats:,}",
            f"messages          {stats.num_messages:,}",
            f"prompt tokens     {num_prompt_tokens:,}",
            f"  reused          {stats.num_cached_tokens:,}{share}",
            f"generated tokens  {stats.num_generated_tokens:,}",
            f"on disk           {stats.num_bytes / 1e6:,.1f} MB",
        ]
    )


def file_stem(chat: Chat) -> str:
    """A name for a chat's file, without its ending: the letters and digits of its title, and how its id begins."""
    title = "-".join(re.findall(r"\w+", chat.title)).encode()[:MAX_STEM_BYTES].decode(errors="ignore")
    return f"{title}-{_short_id(chat)}" if title else _short_id(chat)


def _paragraph(heading: str, text: str) -> Iterator[str]:
    yield ""
    yield typer.style(heading, bold=True)
    yield harmless(text)


def _heading(message: Message, tree: MessageTree) -> str:
    siblings = tree.siblings(message.id)
    parts = ["you" if message.role == "user" else "ai"]
    if len(siblings) > 1:
        parts.append(f"{siblings.index(message) + 1}/{len(siblings)}")
    if message.status != "done":
        parts.append({"draft": "being written", "stopped": "stopped", "failed": "failed"}[message.status])
    return "  ".join(parts)


def _short_id(chat: Chat) -> str:
    return chat.id[:SHORT_ID_LENGTH]


def _used_at(chat: Chat) -> str:
    return f"{chat.updated_at.astimezone():%Y-%m-%d %H:%M}"


def _marks(chat: Chat) -> list[str]:
    return ["pinned"] * chat.is_pinned + ["archived"] * chat.is_archived + [f"#{_one_line(tag)}" for tag in chat.tags]


def _one_line(text: str) -> str:
    return harmless(" ".join(text.split()))
