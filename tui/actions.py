"""Everything a person can do, once: its keys, its words, and where they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from textual.binding import Binding


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do.

    name: of the screen's `action_<name>` method, of its line in the keymap file, and of its entry in the palette.
    keys: that work everywhere, from the prompt too; message_keys: while a message is selected.
    title: a line for the palette and the help.
    label: a word for the line of keys at the bottom. There the action stands if `in_line`; while a message is selected,
    if it has a label and keys on a message.
    is_in_prompt: a key of the prompt alone.
    """

    name: str
    title: str
    keys: str = ""
    message_keys: str = ""
    label: str = ""
    in_line: bool = False
    is_in_prompt: bool = False

    def binding(self) -> Binding:
        """Before the widget that has the focus: a text area would take many of these keys for itself."""
        return Binding(self.keys, self.name, self.label or self.title, show=False, priority=True, id=self.name)

    def message_binding(self) -> Binding:
        return Binding(
            self.message_keys,
            f"screen.{self.name}",
            self.label or self.title,
            show=False,
            id=message_binding_id(self.name),
        )


ACTIONS = (
    Action("send", "Send the message", "enter", is_in_prompt=True),
    Action("newline", "Break the line", "ctrl+j,shift+enter", is_in_prompt=True),
    Action("complete", "Take what is offered; else go on to the next part of the screen", "tab", is_in_prompt=True),
    Action("new_chat", "New chat", "ctrl+n", label="new", in_line=True),
    Action("new_temporary", "New temporary chat, never stored", "alt+n"),
    Action("search", "Search all chats", "ctrl+f", label="search", in_line=True),
    Action("retry", "Another reply to the same message", "ctrl+r", "r", label="retry", in_line=True),
    Action("edit", "Edit your message, in the prompt", "ctrl+e", "e", label="edit", in_line=True),
    Action("edit_in_editor", "Write in $EDITOR", "ctrl+g"),
    Action("continue_reply", "Let a reply go on where it was cut", "ctrl+l", "l"),
    Action("previous_sibling", "Previous version of this message", "alt+left", "left", label="versions"),
    Action("next_sibling", "Next version of this message", "alt+right", "right", label="versions"),
    Action("compare", "Versions side by side, or one of them again", "ctrl+o", "o", label="side by side"),
    Action("toggle_diff", "How replies side by side differ from the selected one", "f7", "w"),
    Action("export_table", "Export the table of replies side by side", "", "x"),
    Action("fork", "New chat from here", "ctrl+t", "f", label="fork"),
    Action("tokens", "Tokens of the reply: how likely each was; branch at one", "f6", "t", label="tokens"),
    Action("previous_message", "Select the message above", "alt+up,ctrl+up", "up,k"),
    Action("next_message", "Select the message below", "alt+down,ctrl+down", "down,j"),
    Action("copy_message", "Copy the message", "ctrl+y", "y", label="copy"),
    Action("copy_code", "Copy a code block", "alt+y", "c"),
    Action("save_message", "Save the message to a file", "ctrl+s", "s", label="save"),
    Action("delete_message", "Delete the message and what follows", "", "d,delete", label="delete"),
    Action("undo_delete", "Undo the last deletion", "alt+z", "u"),
    Action("toggle_cache", "Show or hide the cache", "ctrl+k", label="cache", in_line=True),
    Action("toggle_chats", "Show or hide the chats", "ctrl+b", label="chats", in_line=True),
    Action("toggle_thinking", "Unfold or fold thinking and long texts", "alt+t", "space"),
    Action("pick", "Go on with this one of several replies; else unfold", "", "enter"),
    Action("previous_chat", "Previous chat", "ctrl+pageup"),
    Action("next_chat", "Next chat", "ctrl+pagedown"),
    Action("rename_chat", "Rename the chat", "f2"),
    Action("pin_chat", "Pin or unpin the chat"),
    Action("archive_chat", "Archive the chat, or bring it back"),
    Action("archived_chats", "Open an archived chat"),
    Action("keep_chat", "Keep a temporary chat: store it"),
    Action("delete_chat", "Delete the chat"),
    Action("export_chat", "Export the chat to a file"),
    Action("settings", "Settings of the chat", "f3"),
    Action("choose_model", "Choose the model", "f4"),
    Action("stop", "Stop the reply; back to the prompt", "escape", label="stop", in_line=True),
    Action("show_help", "All keys and commands", "f1", label="help"),
    Action("show_palette", "Everything that can be done, and every chat, by its name", "ctrl+p", label="palette"),
    Action("quit", "Quit", "ctrl+q", label="quit"),
)

BY_NAME: Mapping[str, Action] = {action.name: action for action in ACTIONS}


def screen_bindings() -> list[Binding]:
    return [action.binding() for action in ACTIONS if action.keys and not action.is_in_prompt]


def message_bindings() -> list[Binding]:
    return [action.message_binding() for action in ACTIONS if action.message_keys]


def message_binding_id(name: str) -> str:
    """What the keymap file calls the key that works on a selected message."""
    return f"message.{name}"
