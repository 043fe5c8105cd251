"""A block of code in a reply: its language above it, and a place to press that copies it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import Click
from textual.widgets import Label, Markdown, Static
from textual.widgets.markdown import MarkdownFence

from ..messages import CodeCopied


class CopyLabel(Static):
    """The word that copies."""

    DEFAULT_CSS = """
    CopyLabel { width: auto; color: $text-muted; text-style: underline; pointer: pointer; }
    CopyLabel:hover { color: $text-accent; }
    """

    def __init__(self) -> None:
        super().__init__("copy", markup=False)

    def on_click(self, event: Click) -> None:
        event.stop()
        self.post_message(CodeCopied(self.query_ancestor(CodeBlock).code))


class CodeBlock(MarkdownFence):
    """Textual's fence under a line of its own."""

    DEFAULT_CSS = """
    CodeBlock { margin: 0 0 1 0; }
    CodeBlock > Horizontal { height: 1; padding: 0 1; background: $surface; }
    CodeBlock > Horizontal > .language { width: 1fr; color: $text-muted; }
    CodeBlock > Label { padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(self.lexer.split()[0] if self.lexer.strip() else "code", classes="language", markup=False)
            yield CopyLabel()
        yield from super().compose()


class ReplyMarkdown(Markdown):
    """Markdown whose code can be copied. Links aren't opened: no request leaves the machine unasked."""

    BLOCKS = {**Markdown.BLOCKS, "fence": CodeBlock, "code_block": CodeBlock}  # noqa: RUF012

    def __init__(self, markdown: str | None = None) -> None:
        super().__init__(markdown, open_links=False)

    @property
    def code_blocks(self) -> list[str]:
        """The code of each block, from top to bottom."""
        return [block.code for block in self.query(CodeBlock)]
