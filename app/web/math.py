"""Formulas: LaTeX as MathML, which browsers draw with their own fonts, so that a page needs no script for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from html import escape, unescape
from itertools import pairwise
from unicodedata import category
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert_to_element
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from mdit_py_plugins.dollarmath import dollarmath_plugin

MAX_LATEX_LENGTH = 4000


def _words(line: str) -> frozenset[str]:
    return frozenset(line.split())


_TAGS = _words(
    "math mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle mpadded mphantom msub msup msubsup munder mover "
    "munderover mmultiscripts mprescripts none mtable mtr mtd menclose merror"
)
_ATTRIBUTES = _words(
    "accent columnalign columnlines columnspacing depth display displaystyle fence form height largeop linebreak "
    "linethickness lspace mathsize mathvariant maxsize minsize movablelimits notation rowalign rowlines rowspacing "
    "rspace scriptlevel separator stretchy symmetric voffset width"
)
# After one of these a sign belongs to what follows it.
_BEFORE_SIGN = frozenset("=<>≤≥≠≈≡≃≅∝∈→⇒⟹⇔⟺←↦\xd7·([{,;:")
_SIGNS = frozenset("+-\u2212±∓")
# The converter lays these out as lines of equations only under their other names.
_OTHER_NAMES = re.compile(r"\\(begin|end)\{(?:aligned|gathered)\}")


@lru_cache(maxsize=512)
def render_math(latex: str, *, is_display: bool) -> str:
    """HTML of a formula; where it can't be understood, its source.

    The converter copies what it is given into its output, attributes too: only what is known to be harmless is kept.
    """
    display = "block" if is_display else "inline"
    if not latex.strip():  # no formula, or not yet one
        return "$$ $$" if is_display else "$ $"
    try:
        if len(latex) > MAX_LATEX_LENGTH:
            raise ValueError("too long to be a formula")
        root = convert_to_element(_OTHER_NAMES.sub(r"\\\1{align*}", latex.strip()), display=display)
        return _safe_html(root)
    # Whatever it fails with, and deep nesting fails in many ways: a reader is better served by the source.
    except Exception:
        return f'<code class="math-source">{escape(latex.strip())}</code>'


def math_plugin(markdown: MarkdownIt) -> None:
    r"""Reads $…$, $$…$$, \(…\) and \[…\] as formulas."""
    dollarmath_plugin(
        markdown,
        allow_labels=False,
        allow_space=False,
        allow_digits=False,
        double_inline=True,
    )
    for kind in ("math_inline", "math_inline_double", "math_block"):
        markdown.add_render_rule(kind, _render)
    markdown.add_render_rule("softbreak", _break)
    markdown.inline.ruler.before("escape", "math_bracketed", _bracketed)


def _render(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    html = render_math(token.content, is_display=token.type != "math_inline")
    return f'<div class="math">{html}</div>' if token.type == "math_block" else f'<span class="math">{html}</span>'


def _break(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    # A formula on a line of its own ends the one before it and begins the one after it by itself.
    beside = tokens[max(0, index - 1) : index + 2]
    return "\n" if any(token.type == "math_inline_double" for token in beside) else "<br />\n"


def _bracketed(state: StateInline, silent: bool) -> bool:
    opening = state.src[state.pos : state.pos + 2]
    closing = {r"\(": r"\)", r"\[": r"\]"}.get(opening)
    if closing is None:
        return False
    begin = state.pos + 2
    end = state.src.find(closing, begin, min(state.posMax, begin + MAX_LATEX_LENGTH + len(closing)))
    if end == -1 or not state.src[begin:end].strip():
        return False
    if not silent:
        token = state.push("math_inline_double" if opening == r"\[" else "math_inline", "math", 0)
        token.content = state.src[begin:end]
        token.markup = opening
    state.pos = end + 2
    return True


def _safe_html(element: Element) -> str:
    if element.tag not in _TAGS:
        raise ValueError(f"no element of a formula: {element.tag}")
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in element.attrib.items() if name in _ATTRIBUTES)
    for before, child in pairwise(element):
        if _character(child) in _SIGNS and _character(before) in _BEFORE_SIGN:
            child.set("form", "prefix")  # else browsers take it for a difference, with space on both sides
    children = "".join(_safe_html(child) + _safe_text(child.tail) for child in element)
    text = _safe_text(element.text)
    # The converter takes some operators, ± above all, for names, and a name has no space around it.
    tag = "mo" if element.tag == "mi" and len(text) == 1 and category(text) == "Sm" else element.tag
    return f"<{tag}{attributes}>{text}{children}</{tag}>"


def _character(element: Element) -> str:
    return unescape(element.text or "") if element.tag in ("mo", "mi") else ""


def _safe_text(text: str | None) -> str:
    # The converter writes characters as entities.
    return escape(unescape(text or ""))
