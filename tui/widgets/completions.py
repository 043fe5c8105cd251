"""What the word in the prompt could become; under the arrows while the prompt keeps the focus."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ..plain_text import plain


class Completions(OptionList, can_focus=False):
    """Shown only while there is something to choose."""

    DEFAULT_CSS = """
    Completions { height: auto; max-height: 9; display: none; border: none; background: $panel; padding: 0 1;
        text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self) -> None:
        super().__init__(id="completions", markup=False)

    def offer(self, choices: Sequence[tuple[str, str]]) -> None:
        """Each choice is the word, and a line that says what it is."""
        self.clear_options()
        width = max((len(word) for word, _ in choices), default=0)
        self.add_options(Option(f"{plain(word).ljust(width)}  {words}".rstrip(), id=word) for word, words in choices)
        self.display = bool(choices)
        if choices:
            self.highlighted = 0

    def narrow(self, word: str) -> None:
        """Takes away what `word` can't become any more, until it is known what else it can."""
        ids = [option.id or "" for option in self.options]
        self.offer([(one, "") for one in ids if self.is_open and one.lower().startswith(word.lower())])

    @property
    def is_open(self) -> bool:
        return bool(self.display)

    @property
    def chosen(self) -> str | None:
        """The word under the highlight."""
        if not self.is_open or self.highlighted is None:
            return None
        return self.get_option_at_index(self.highlighted).id

    def close(self) -> None:
        self.display = False
