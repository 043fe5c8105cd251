"""The command line: finds subcommands by entry point, loads the one that is called, shows errors as sentences."""

import ast
import importlib.util
import os
import sys
from codecs import lookup
from importlib.metadata import EntryPoint, entry_points
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from .commands.help_option import HELP_OPTIONS
from .misplaced_option import telling_where_options_go

COMMANDS_GROUP = "paged_chat.commands"
EXIT_ERROR = 1
EXIT_INTERRUPTED = 130


def command_entry_points() -> dict[str, EntryPoint]:
    """The installed subcommands by name; each entry point is a `typer.Typer`."""
    return {entry.name: entry for entry in sorted(entry_points(group=COMMANDS_GROUP), key=lambda entry: entry.name)}


def summary_of(entry: EntryPoint) -> str:
    """The first line of the docstring of a command's module, read without running the module."""
    spec = importlib.util.find_spec(entry.module)
    if spec is None or spec.origin is None:
        return ""
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


class CommandGroup(TyperGroup):
    """Lists the commands by their summaries alone; loads one only when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._entry_points = command_entry_points()
        for name, entry in self._entry_points.items():
            self.add_command(TyperCommand(name, short_help=summary_of(entry)))  # `help` would be cut to one line

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else self.loaded(name), rest

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._words = list(args)
        with telling_where_options_go(self._words):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with telling_where_options_go(self._words):
            return super().invoke(ctx)

    def loaded(self, name: str) -> Any:
        """The command itself, whose module is imported for it."""
        command = get_command(self._entry_points[name].load())
        command.name = name
        return command


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP_OPTIONS,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"paged-chat {version('paged-chat')}")
        raise typer.Exit


@app.callback()
def options(
    home: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Folder for models and chats, instead of PAGED_CHAT_HOME or the user's data folder."
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Local chat that never computes the same prefix twice."""
    if home == "":  # which would be the folder that one is in
        raise typer.BadParameter("--home must name a folder, not ''")
    if home is not None:
        os.environ["PAGED_CHAT_HOME"] = os.path.realpath(os.path.expanduser(home))


def main() -> None:
    """Runs one command; exits with 0, 1 (an error said in one sentence), 2 (usage) or 130 (Ctrl-C)."""
    from paged_chat.engine.errors import PagedChatError

    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no letter for something shows a question mark. In a locale of ASCII alone Python lets
        # through what it couldn't decode, and refuses all else.
        if isinstance(stream, TextIOWrapper) and (stream.errors == "strict" or lookup(stream.encoding).name == "ascii"):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="paged-chat")
    except PagedChatError as error:
        _show_error(str(error))
        sys.exit(EXIT_ERROR)
    except OSError as error:
        if error.filename is not None or error.errno is None:  # no stream; a library that can't be loaded has no number
            raise
        _show_error(f"the output can't be written: {error.strerror}")
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _show_error(text: str) -> None:
    from .terminal_text import harmless

    typer.secho(f"Error: {harmless(text)}", fg="red", err=True)  # names of files and tensors are in it
