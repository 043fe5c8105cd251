"""Where a person writes: several lines, what was written before, long pastes folded to one word."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.widgets import TextArea

from paged_chat.app.counted import counted

from ..key_names import keys_of
from ..messages import PromptChanged, PromptSent, expand
from ..plain_text import PICTURES
from .completions import Completions
from .keys_in_order import TextField

# A paste longer than this stands in the prompt as one word, and is put in its place when the message is sent.
MAX_PASTE_CHARACTERS = 1_000
MAX_PASTE_LINES = 15


class Prompt(TextField):
    """Enter sends, Ctrl+J or Shift+Enter break the line; up and down at the edges walk the history."""

    def __init__(self, completions: Completions) -> None:
        """`completions` is under the arrows while it is open."""
        super().__init__(id="prompt", placeholder="Message…   / commands   @ files", highlight_cursor_line=False)
        self._completions = completions
        self._acts = {"send": self.send, "newline": self.break_line, "complete": self.take_completion}
        self.pastes: dict[str, str] = {}  # by the word that stands for it
        self._history: list[str] = []  # oldest first
        self._place = 0  # in the history; its length is what is being written now
        self._unsent = ""

    # Keys

    async def _on_key(self, event: events.Key) -> None:
        """Not as bindings: those run at once, while what was typed before still waits for its turn."""
        bound = {key: act for name, act in self._acts.items() for key in keys_of(self, name)}
        act = bound.get(event.key)
        if act is not None:
            event.stop()
            event.prevent_default()
            act()

    # Sending

    def send(self) -> None:
        chosen = self._completions.chosen
        if chosen is not None and chosen != self.word_before_cursor:
            self.take_completion()
            return
        self._completions.close()
        sent = PromptSent(self.text, dict(self.pastes))
        # At once: what is typed while it is being sent belongs to the next message.
        self.empty()
        self.post_message(sent)

    def give_back(self, refused: PromptSent) -> None:
        """Puts what couldn't be sent into the prompt again; where something else was written meanwhile, before it.

        Before it means in the history, one step up, with what was pasted in full.
        """
        if self.text:
            self.remember(refused.expanded)
        else:
            self.pastes = dict(refused.pastes)
            self.write(refused.text)

    def take_completion(self) -> None:
        """Takes the word under the highlight; without one, goes to the next part of the screen.

        What a file could be called is looked up, so behind an @ it waits where it is.
        """
        chosen = self._completions.chosen
        if chosen is None:
            if not self.word_before_cursor.startswith("@"):
                self.screen.focus_next()
            return
        self._completions.close()
        self.complete(chosen if chosen.endswith("/") else f"{chosen} ")

    def break_line(self) -> None:
        self.insert("\n")

    def expanded(self, text: str) -> str:
        """The text with what was pasted in the place of the words for it."""
        return expand(text, self.pastes)

    def remember(self, text: str) -> None:
        """Adds what was sent to the history."""
        if text.strip() and (not self._history or self._history[-1] != text):
            self._history.append(text)
        self._place = len(self._history)

    def set_history(self, texts: list[str]) -> None:
        """What the person wrote in this chat before, oldest first."""
        self._history = texts
        self._place = len(texts)

    def write(self, text: str) -> None:
        """Puts a text into the prompt, the cursor at its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def empty(self) -> None:
        self.load_text("")
        self.pastes.clear()
        self._unsent = ""
        self._place = len(self._history)

    # History

    def action_cursor_up(self, select: bool = False) -> None:
        if self._completions.is_open:
            self._completions.action_cursor_up()
        elif select or not self.cursor_at_first_line or not self._walk(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if self._completions.is_open:
            self._completions.action_cursor_down()
        elif select or not self.cursor_at_last_line or not self._walk(1):
            super().action_cursor_down(select)

    def _walk(self, direction: int) -> bool:
        place = self._place + direction
        if not 0 <= place <= len(self._history):
            return False
        if self._place == len(self._history):
            self._unsent = self.text
        self._place = place
        self.write(self._unsent if place == len(self._history) else self._history[place])
        return True

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        line.plain = line.plain.translate(PICTURES)
        return line

    # What comes in

    def on_paste(self, event: events.Paste) -> None:
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")  # terminals send a carriage return for each line
        num_lines = text.rstrip("\n").count("\n") + 1
        if len(text) <= MAX_PASTE_CHARACTERS and num_lines <= MAX_PASTE_LINES:
            return  # the text area's own handler comes next
        event.stop()
        event.prevent_default()
        word = f"[pasted {len(self.pastes) + 1}: {counted(num_lines, 'line')}]"
        self.pastes[word] = text
        self.insert(word)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self.post_message(PromptChanged(self.text))

    # Completion

    @property
    def word_before_cursor(self) -> str:
        """Back to the last white space."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        return before[len(before.rstrip()) :] if before[-1:].isspace() else before.split()[-1] if before.split() else ""

    def complete(self, word: str) -> None:
        """Puts `word` in the place of the one before the cursor."""
        row, column = self.cursor_location
        self.replace(word, (row, column - len(self.word_before_cursor)), (row, column))
