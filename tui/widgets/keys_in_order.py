"""What is typed happens in the order in which it was typed, however fast it comes."""

from __future__ import annotations

from textual import events
from textual.widget import Widget
from textual.widgets import Input, TextArea


class KeysInOrder:
    """A field that obeys its own editing keys where it takes its letters.

    Textual runs a binding only when its key has come back from the field to the application; letters that arrived in
    the meantime, as they do over a slow line or from a fast typist, stand in the field by then, and a backspace meant
    for the letter before it takes the one behind it.

    No widget of its own, for Textual looks for a widget's style classes along its first base alone.
    """

    async def _on_key(self, event: events.Key) -> None:
        assert isinstance(self, Widget), "it is mixed into one"
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if not binding.priority and await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return


class LineField(KeysInOrder, Input):
    """A line of text."""


class TextField(KeysInOrder, TextArea):
    """Several lines of text."""
