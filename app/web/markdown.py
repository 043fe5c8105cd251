"""Text as HTML, block by block: what a model wrote in Markdown, what a person wrote as it stands.

Nothing of a message becomes markup of its own: HTML in it is shown, not obeyed; a link opens only where it leads to
the web or to mail; a picture is a link, for to fetch it would tell somebody that it was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from html import escape

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from ..thinking import split_thinking
from .highlight import highlight
from .math import math_plugin
from .task_lists import task_list_plugin

# Longer texts are shown as they stand: some that are made for it take time that grows with the square of their length.
MAX_MARKDOWN_LENGTH = 100_000
# A cell with more letters gets some width: where a table has no room it would have one word on each line.
MAX_NARROW_CELL = 24


@dataclass(frozen=True, slots=True)
class Block:
    """One block at the top level: its HTML, which is one element, and the line where it begins."""

    html: str
    line: int


@lru_cache(maxsize=1024)
def render_reply(text: str) -> tuple[str, ...]:
    """The blocks of a whole reply."""
    thinking, answer = split_thinking(text)
    folded = () if thinking is None else (fold_thinking(thinking.text, is_open_ended=thinking.is_open_ended),)
    return (*folded, *(block.html for block in blocks_of(answer)))


@lru_cache(maxsize=1024)
def render_question(text: str) -> tuple[str, ...]:
    """The blocks of what a person wrote: paragraphs as they were typed, and code between fences."""
    return tuple(block.html for block in _blocks(_plain(), text))


def blocks_of(text: str) -> list[Block]:
    """The blocks of Markdown."""
    return list(_blocks(_markdown() if len(text) <= MAX_MARKDOWN_LENGTH else _plain(), text))


def fold_thinking(text: str, *, is_open_ended: bool) -> str:
    """A block that holds a model's thinking, folded."""
    inner = "".join(block.html for block in blocks_of(text))
    words = "Thinking…" if is_open_ended else "Thought"
    state = ' data-open-ended=""' if is_open_ended else ""
    return f'<details class="thinking"{state}><summary>{words}</summary><div>{inner}</div></details>'


def _blocks(markdown: MarkdownIt, text: str) -> Iterator[Block]:
    env: EnvType = {}
    group: list[Token] = []
    for token in markdown.parse(text, env):
        group.append(token)
        if token.level == 0 and token.nesting != 1:
            html = markdown.renderer.render(group, markdown.options, env).strip()
            line = group[0].map[0] if group[0].map else 0
            group = []
            if html:
                yield Block(html, line)


@cache
def _markdown() -> MarkdownIt:
    # A line that a model ends stays one: of a poem, an address.
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    markdown.use(math_plugin).use(task_list_plugin)
    _draw_our_way(markdown)
    return markdown


@cache
def _plain() -> MarkdownIt:
    # Its paragraphs keep the lines and spaces that were typed: the style sheet has it so.
    markdown = MarkdownIt("zero", {"html": False}).enable("fence")
    _draw_our_way(markdown)
    return markdown


def _draw_our_way(markdown: MarkdownIt) -> None:
    for rule in (fence, code_block, image, link_open, table_open, table_close, td_open):
        markdown.add_render_rule(rule.__name__, rule)


def fence(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    words = tokens[index].info.split()
    return _code(tokens[index].content, words[0] if words else "")


def code_block(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    return _code(tokens[index].content, "")


def image(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    address = escape(str(tokens[index].attrs.get("src", "")))
    words = escape(tokens[index].content) or "picture"
    if not address.startswith(("https://", "http://")):
        return words
    return f'<a href="{address}" target="_blank" rel="noopener noreferrer nofollow">{words}</a>'


def link_open(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    address = escape(str(tokens[index].attrs.get("href", "")))
    if not address.startswith(("https://", "http://", "mailto:")):
        return "<a>"
    return f'<a href="{address}" target="_blank" rel="noopener noreferrer nofollow">'


def table_open(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    # Wide tables scroll in a frame of their own.
    return '<div class="table-frame" tabindex="0"><table>'


def td_open(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    if len(tokens[index + 1].content) > MAX_NARROW_CELL:
        tokens[index].attrJoin("class", "is-long")
    return renderer.renderToken(tokens, index, options, env)


def table_close(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    return "</table></div>"


def _code(source: str, language: str) -> str:
    name = escape(language[:24]) or "text"
    return (
        f'<div class="code"><div class="code-head"><span>{name}</span>'
        '<button type="button" class="copy-code">Copy</button></div>'
        f'<pre tabindex="0"><code>{highlight(source, language)}</code></pre></div>'
    )
