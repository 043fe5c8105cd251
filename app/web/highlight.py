"""Source code as HTML: each token in a span that the style sheet colours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from html import escape

from pygments import format as format_with
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import _TokenType
from pygments.util import ClassNotFound

# Those that people write most. Of the five hundred that Pygments knows some never end with a text made for it.
LANGUAGES = frozenset([
    "bash", "c", "c#", "c++", "clojure", "cmake", "cpp", "cs", "csharp", "css", "dart", "diff", "docker",
    "dockerfile", "elixir", "erlang", "go", "golang", "graphql", "haskell", "html", "ini", "java", "javascript",
    "js", "json", "julia", "kotlin", "latex", "lua", "make", "makefile", "markdown", "matlab", "md", "nginx",
    "ocaml", "perl", "php", "powershell", "protobuf", "py", "python", "r", "rb", "rs", "ruby", "rust", "scala",
    "scheme", "scss", "sh", "shell", "sql", "swift", "tex", "toml", "ts", "typescript", "xml", "yaml", "yml", "zig",
])  # fmt: skip
# Longer code is shown without colours: they would cost more time than they give.
MAX_COLOURED_LENGTH = 10_000
# Of the processor's time. What takes longer was made to.
MAX_LEXING_S = 0.5

_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True, classprefix="hl-")


@lru_cache(maxsize=256)
def highlight(source: str, language: str) -> str:
    """Escaped, and coloured where the language is known."""
    name = language.lower()
    lexer = _lexer(name) if name in LANGUAGES and len(source) <= MAX_COLOURED_LENGTH else None
    if lexer is None:
        return escape(source)
    try:
        return format_with(_tokens(source, lexer), _FORMATTER)
    except LexingTakesLong:
        return escape(source)


def _tokens(source: str, lexer: Lexer) -> Iterator[tuple[_TokenType, str]]:
    end = time.thread_time() + MAX_LEXING_S
    for token in lexer.get_tokens(source):
        yield token
        if time.thread_time() > end:
            raise LexingTakesLong


class LexingTakesLong(Exception):
    """The code is shown without colours."""


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None
