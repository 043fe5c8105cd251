"""Commands that are written into the prompt: a slash, a name, and sometimes something behind it."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from paged_chat.app.errors import PagedChatError
from paged_chat.app.written_setting import allowed_words

SettingName = Literal[
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "n",
    "seed",
    "logprobs",
    "beam_width",
    "length_penalty",
    "early_stopping",
]


class UnknownCommand(PagedChatError):
    """A slash with a name that nothing has, or with something behind it that can't be meant."""


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One command.

    argument: what may stand behind the name, in words; "" for nothing.
    action: the screen's action that it runs, for a command without an argument of its own.
    setting: the sampling parameter that it sets, whose own name is understood as well.
    also: names that people know from other programs.
    """

    name: str
    title: str
    argument: str = ""
    action: str | None = None
    setting: SettingName | None = None
    also: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All that are understood."""
        return (self.name, *self.also, *([self.setting.replace("_", "-")] if self.setting else []))

    @property
    def help(self) -> str:
        """A line: what may stand behind it, what it does, what a number may be."""
        words = f"/{self.name} {self.argument}".rstrip() + f": {self.title}"
        allowed = "" if self.setting is None else allowed_words(self.setting)
        return f"{words} ({allowed})" if allowed else words


COMMANDS = (
    SlashCommand("help", "All keys and commands", action="show_help"),
    SlashCommand("new", "New chat", action="new_chat", also=("clear",)),
    SlashCommand("temporary", "New temporary chat, never stored", action="new_temporary"),
    SlashCommand("keep", "Keep a temporary chat: store it", action="keep_chat"),
    SlashCommand("search", "Search all chats", "words", also=("find",)),
    SlashCommand("system", "System prompt of this chat; alone shows it, - takes it away", "text"),
    SlashCommand("use-system", "System prompt kept under a name; alone lists them", "name"),
    SlashCommand("save-system", "Keep this chat's system prompt under a name", "name"),
    SlashCommand("model", "Load another model; alone lists them", "name"),
    SlashCommand("engine", "own loads a model here, shared uses a running program's, ask asks anew", "which"),
    SlashCommand("n", "Replies side by side", "count", setting="n"),
    SlashCommand("temp", "Temperature: 0 takes the most likely token", "number", setting="temperature"),
    SlashCommand("top-p", "Draw from the tokens that reach this together", "number", setting="top_p"),
    SlashCommand("top-k", "Draw from so many tokens; 0 is all", "count", setting="top_k"),
    SlashCommand("min-p", "Drop tokens less likely than this part of the first", "number", setting="min_p"),
    SlashCommand("penalty", "Repetition penalty; 1 is none", "number", setting="repetition_penalty"),
    SlashCommand("presence", "Taken off tokens that the reply has already", "number", setting="presence_penalty"),
    SlashCommand("frequency", "Taken off for each time the reply has a token", "number", setting="frequency_penalty"),
    SlashCommand("max", "Longest reply in tokens; - is what the window holds", "count", setting="max_tokens"),
    SlashCommand("seed", "Makes replies repeatable; - draws one", "number", setting="seed"),
    SlashCommand("alternatives", "Kept for each token, to branch from; - keeps none", "count", setting="logprobs"),
    SlashCommand("beams", "Beam search: over 1 finds the likeliest replies", "count", setting="beam_width"),
    SlashCommand("length-penalty", "Of beam search: over 0 favours long replies", "number", setting="length_penalty"),
    SlashCommand("early-stopping", "Of beam search: true, false or never", "word", setting="early_stopping"),
    SlashCommand("settings", "All settings of the chat", action="settings"),
    SlashCommand("preset", "Settings kept under a name; alone lists them", "name"),
    SlashCommand("save-preset", "Keep this chat's settings under a name", "name"),
    SlashCommand("forget", "Forget what is kept under a name", "name"),
    SlashCommand("retry", "Another reply, or several", "count", also=("regenerate",)),
    SlashCommand("continue", "Let a reply go on where it was cut", action="continue_reply"),
    SlashCommand("edit", "Edit your last message", action="edit"),
    SlashCommand("fork", "New chat from here", action="fork"),
    SlashCommand("tokens", "Tokens of the reply: how likely each was; branch at one", action="tokens"),
    SlashCommand("compare", "Ask next under several: presets, or name=value; alone, versions side by side", "settings"),
    SlashCommand("diff", "How replies side by side differ", action="toggle_diff"),
    SlashCommand("table", "Export the table of replies side by side: .md, .json or .csv", "path"),
    SlashCommand("copy", "Copy the last reply", action="copy_message"),
    SlashCommand("save", "Save the message to a file", "path"),
    SlashCommand("export", "Export the chat: .md or .json", "path"),
    SlashCommand("import", "Add the chats of a file: .json or .md", "path"),
    SlashCommand("rename", "Rename the chat", "title", also=("title",)),
    SlashCommand("pin", "Pin or unpin the chat", action="pin_chat"),
    SlashCommand("archive", "Archive the chat, or bring it back", action="archive_chat"),
    SlashCommand("archived", "Open an archived chat", action="archived_chats"),
    SlashCommand("delete", "Delete the chat", action="delete_chat"),
    SlashCommand("undo", "Undo the last deletion", action="undo_delete"),
    SlashCommand("cache", "Show or hide the cache", action="toggle_cache"),
    SlashCommand("chats", "Show or hide the chats", action="toggle_chats"),
    SlashCommand("theme", "Colours; alone lists them", "name"),
    SlashCommand("quit", "Quit", action="quit", also=("exit", "q")),
)


@dataclass(frozen=True, slots=True)
class Call:
    """A command with what stands behind it."""

    command: SlashCommand
    argument: str


def parse(text: str) -> Call | None:
    """The command in a prompt; None for a message. `//` begins a message with a slash.

    Raises UnknownCommand for a name that nothing has, and for what stands behind a command that takes nothing.
    """
    if not text.startswith("/") or text.startswith("//") or not text[1:2].isalpha():
        return None
    name, _, argument = text[1:].partition(" ") if "\n" not in text.split(" ")[0] else text[1:].partition("\n")
    command = next((command for command in COMMANDS if name.lower().replace("_", "-") in command.names), None)
    if command is None:
        if "/" in name:
            return None  # a path is no command
        raise UnknownCommand(
            f"there is no command /{name}{_maybe(name)}: /help lists them; // sends a message that begins with /"
        )
    argument = argument.strip()
    if argument and not command.argument:
        raise UnknownCommand(f"/{name} takes nothing behind it")
    return Call(command, argument)


def _maybe(name: str) -> str:
    """Such as ", maybe /system", where something is written like it; else ""."""
    likely = get_close_matches(name.lower(), [known for command in COMMANDS for known in command.names], n=1)
    return f", maybe /{likely[0]}" if likely else ""


def help_line(text: str) -> str | None:
    """What stands under the prompt in the place of a message's cost; None for a message."""
    try:
        call = parse(text)
    except UnknownCommand as error:
        return None if completions(text) else str(error)  # what is offered may be meant
    return None if call is None else call.command.help


def message_text(text: str) -> str:
    """What is sent: without the second slash of one that was doubled."""
    return text[1:] if text.startswith("//") else text


def completions(text: str) -> list[SlashCommand]:
    """The commands that begin with what is written so far; the one that it is comes first, for Enter takes that."""
    if not text.startswith("/") or any(character.isspace() for character in text):
        return []
    written = text[1:].lower()
    begun = [command for command in COMMANDS if command.name.startswith(written)]
    return sorted(begun, key=lambda command: command.name != written)
