"""Markdown that reads well anywhere, and from which the whole chat comes back.

    <!-- paged-chat:chat 1 -->              1 is the version of this form
    # Trip to Lisbon

    <!-- paged-chat:message 12 -->          its id
    ## You

    three days, no museums

    <!-- paged-chat:branches -->            then what isn't on the path that is shown
    # Other branches

    <!-- paged-chat:message 14 -->
    ## Assistant, in reply to “three days, no museums”

    Belém first …

    <!-- paged-chat:record                  what is known beside the texts, as in our JSON
    {…}
    -->

The comments don't show. A text begins after its heading and an empty line, ends before the empty line that stands in
front of the next comment of ours, and comes back to the byte. Two things are added to it: a backslash before a line
that looks like a comment of ours, and, where a cut reply left a code block or an HTML block open, a last line that
closes it; its comment then says so: `<!-- paged-chat:message 14 closed -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, TextIO

import xxhash
from markdown_it import MarkdownIt

from ..chats import Chat, Message, MessageTree, title_from
from .chat_record import VERSION, chat_record

MARK = "<!-- paged-chat:"
MARK_IN_TEXT = re.compile(rf"^(?=\\*{MARK})", re.MULTILINE)

_SPECIAL = re.compile(r"[\\`*_\[\]<>#&|~]")
# HTML blocks that run on over empty lines: how each begins, and a line that ends it (CommonMark 0.31, section 4.6).
_HTML_BLOCKS = (
    (re.compile(r" {0,3}<(?:script|pre|style|textarea)", re.IGNORECASE), "</pre>"),
    (re.compile(r" {0,3}<!--"), "-->"),
    (re.compile(r" {0,3}<\?"), "?>"),
    (re.compile(r" {0,3}<!\[CDATA\["), "]]>"),
    (re.compile(r" {0,3}<!"), ">"),
)
_STATUS = {"done": "", "stopped": " (stopped)", "failed": " (failed)", "draft": " (unfinished)"}


def write_markdown(chats: Iterable[tuple[Chat, MessageTree]], out: TextIO) -> None:
    """Writes one document with all chats, one after the other."""
    separator = ""
    for chat, tree in chats:
        out.write(separator + _document(chat, tree))
        separator = "\n"


def _document(chat: Chat, tree: MessageTree) -> str:
    shown = tree.path(chat.active_leaf_id)
    parts = [f"{MARK}chat {VERSION} -->\n# {_plain(chat.title)}\n\n"]
    if chat.system_prompt is not None:
        parts.append(_section("system", "System prompt", chat.system_prompt))
    parts.extend(_section(f"message {message.id}", _who(message), message.text) for message in shown)
    if len(tree) > len(shown):
        parts.append(f"{MARK}branches -->\n# Other branches\n\n")
        shown_ids = {message.id for message in shown}
        for message in sorted(tree, key=lambda message: message.id):
            if message.id not in shown_ids:
                heading = f"{_who(message)}, {_relation(message, tree)}"
                parts.append(_section(f"message {message.id}", heading, message.text))
    parts.append(f"{MARK}record\n{_record_text(chat_record(chat, tree))}\n-->\n")
    return "".join(parts)


def _section(name: str, heading: str, text: str) -> str:
    body = MARK_IN_TEXT.sub(r"\\", text)
    closing = _closing(body)
    if closing:
        return f"{MARK}{name} closed -->\n## {heading}\n\n{body}\n{closing}\n\n"
    return f"{MARK}{name} -->\n## {heading}\n\n{body}\n\n"


def _record_text(record: dict[str, Any]) -> str:
    """A line for the chat and one for each message, without their texts and without what could end the comment."""
    del record["system_prompt"]
    messages = []
    for message in record.pop("messages"):
        text = message.pop("text")
        if "token_ids" in message:
            message["digest"] = digest_of(text)
        messages.append(json.dumps(message, ensure_ascii=False))
    lines = json.dumps(record, ensure_ascii=False)[:-1] + ', "messages": [\n' + ",\n".join(messages) + "\n]}"
    return lines.replace("<", r"\u003c").replace(">", r"\u003e")


def digest_of(text: str) -> str:
    """Tells whether a reply was edited in the file: its token ids are then no longer those of its text."""
    return xxhash.xxh3_64_hexdigest(text.encode())


def _who(message: Message) -> str:
    return ("You" if message.role == "user" else "Assistant") + _STATUS[message.status]


def _relation(message: Message, tree: MessageTree) -> str:
    if message.parent_id is None:
        return "as another beginning"
    parent = tree[message.parent_id].text
    about = _plain(title_from(parent)) if parent.strip() else "…"
    return f"{'after' if message.role == 'user' else 'in reply to'} “{about}”"


def _plain(line: str) -> str:
    """One line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(line.split()))


def _closing(text: str) -> str:
    """The line that closes what the text leaves open, so that the next heading shows as one; mostly "".

    What stands in a list or a quotation ends with it, so only a fence or HTML at the outermost level can be open.
    """
    if not ("```" in text or "~~~" in text or "<" in text):
        return ""
    last = _block_parser().parse(f"{text}\n\n# end\n")[-1]
    if last.type == "fence":
        return last.markup
    if last.type == "html_block":
        return next(closing for begin, closing in _HTML_BLOCKS if begin.match(last.content))
    return ""


@cache
def _block_parser() -> MarkdownIt:
    return MarkdownIt("commonmark").disable(["inline", "text_join"])
