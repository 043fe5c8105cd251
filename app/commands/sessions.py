"""List, show, search, export, import and delete chats."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Annotated, TextIO

import typer

from paged_chat.engine.config import DEFAULT_MODEL
from paged_chat.engine.number_range import NumberRange

from .. import porting
from ..chats import Chat, MessageTree
from ..counted import counted
from ..errors import ChatNotFound, ExportRefused, ImportRefused
from ..imported_chat import with_sampling
from ..porting.chat_record import chat_fields, chat_record
from ..porting.new_file import new_file, refuse_existing
from ..service.default_sampling import default_sampling_of
from ..store.chat_table import MAX_LIMIT
from ..store.store import Store, default_path
from ..terminal_text import json_line
from . import chat_text
from .choice_option import choice_option
from .help_option import HELP_OPTIONS
from .number_option import number_option
from .path_option import named_path

STANDARD_STREAM = Path("-")
LIMITS = NumberRange(1, MAX_LIMIT)
SUFFIXES = {"json": ".json", "markdown": ".md"}
WRITERS = {"json": porting.write_json, "markdown": porting.write_markdown}

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings=HELP_OPTIONS,
    help="List, show, search, export, import and delete chats.",
)

ChatArgument = Annotated[str, typer.Argument(metavar="CHAT", help="A chat's id, or how it begins.", show_default=False)]
UserOption = Annotated[
    str, typer.Option("--user", metavar="NAME", help="Whose chats, where people log in.", show_default=False)
]


@app.command("list", context_settings=HELP_OPTIONS)
def list_chats(
    archived: Annotated[bool, typer.Option("--archived", help="The archived ones instead.")] = False,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="Only those with this tag.")] = None,
    limit: Annotated[int | None, number_option(LIMITS, metavar="COUNT", help="No more than COUNT")] = None,
    user: UserOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each chat.")] = False,
) -> None:
    """List chats: pinned ones first, then the newest."""
    with _store() as store:
        chats = store.chats(user=user, archived=archived, tag=tag, limit=limit)
    for chat in chats:
        typer.echo(json_line(chat_fields(chat), sys.stdout) if as_json else chat_text.list_line(chat))
    if not chats:
        typer.echo("no such chats" if archived or tag is not None or user else "no chats yet", err=True)


@app.command(context_settings=HELP_OPTIONS)
def show(
    chat: ChatArgument,
    user: UserOption = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole chat as one JSON object, every branch.")
    ] = False,
) -> None:
    """Print a chat: the path that is shown, with what each reply took."""
    with _store() as store:
        [found] = _find(store, [chat], user)
        tree = store.tree(found.id)
    if as_json:
        typer.echo(json_line(chat_record(found, tree), sys.stdout))
    else:
        for paragraph in chat_text.shown_chat(found, tree):
            typer.echo(paragraph)


@app.command(context_settings=HELP_OPTIONS)
def search(
    words: Annotated[list[str], typer.Argument(metavar="WORD", help="All of these.", show_default=False)],
    limit: Annotated[int, number_option(LIMITS, metavar="COUNT", help="No more than COUNT places")] = 50,
    user: UserOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each place.")] = False,
) -> None:
    """Find words in titles and messages, in any script."""
    if not "".join(words).strip():
        raise typer.BadParameter("WORD must not be empty")
    with _store() as store:
        hits = store.search(" ".join(words), user=user, limit=limit)
    for hit in hits:
        if as_json:
            place = {"chat": hit.chat.id, "title": hit.chat.title, "message": hit.message_id}
            typer.echo(json_line(place | {"snippet": hit.snippet, "highlights": hit.highlights}, sys.stdout))
        else:
            typer.echo(chat_text.search_line(hit))
    if not hits:
        typer.echo("nothing found", err=True)


@app.command(context_settings=HELP_OPTIONS)
def export(
    chats: Annotated[
        list[str] | None,
        typer.Argument(metavar="CHAT", help="Chats' ids, or how they begin.", show_default=False),
    ] = None,
    all_chats: Annotated[bool, typer.Option("--all", help="Every chat, the archived ones too.")] = False,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", parser=named_path, help="A file, a folder for one file a chat, or -."
        ),
    ] = STANDARD_STREAM,
    format: Annotated[
        str | None,
        choice_option(WRITERS, metavar="FORMAT", help="Otherwise Markdown for FILE.md, and JSON."),
    ] = None,
    shown: Annotated[bool, typer.Option("--shown", help="Leave out what isn't on the path that is shown.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    user: UserOption = "",
) -> None:
    """Write chats to a file, as JSON or Markdown; `import` reads both."""
    if bool(chats) == all_chats:
        raise typer.BadParameter("name the chats, or give --all")
    chosen = format or ("markdown" if output.suffix.lower() in (".md", ".markdown") else "json")
    with _store() as store:
        found = store.chats(user=user, archived=None) if all_chats else _find(store, chats or (), user)
        if os.path.isdir(output):  # where its name is too long, pathlib's raises
            paths = [output / f"{chat_text.file_stem(chat)}{SUFFIXES[chosen]}" for chat in found]
            if not force:
                for path in paths:
                    refuse_existing(path)
            for chat, path in zip(found, paths, strict=True):
                with new_file(path, overwrite=force) as out:
                    WRITERS[chosen](_with_trees(store, [chat], shown), out)
        elif output == STANDARD_STREAM:
            with _standard_output() as out:
                WRITERS[chosen](_with_trees(store, found, shown), out)
        else:
            with new_file(output, overwrite=force) as out:
                WRITERS[chosen](_with_trees(store, found, shown), out)
    if output != STANDARD_STREAM:
        typer.echo(f"{counted(len(found), 'chat')} written to {output}")


@app.command("import", context_settings=HELP_OPTIONS)
def import_chats(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE", parser=named_path, help="Files to read; - is standard input.", show_default=False
        ),
    ],
    user: UserOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Add the chats of files, all of them or none."""
    read = [_read_standard_input() if file == STANDARD_STREAM else porting.read_file(file) for file in files]
    left_out = sum((one.left_out for one in read), start=Counter[str]())
    with _store() as store:
        chats = with_sampling((chat for one in read for chat in one.chats), default_sampling_of(DEFAULT_MODEL).sampling)
        added = store.import_chats(chats, user=user)
    if as_json:
        typer.echo(json_line({"chats": [chat.id for chat in added], "left_out": left_out}, sys.stdout))
        return
    typer.echo(f"{counted(len(added), 'chat')} imported")
    if left_out:
        things = ", ".join(f"{count:,} {thing}" for thing, count in sorted(left_out.items()))
        typer.echo(f"not taken over: {things}")


@app.command(context_settings=HELP_OPTIONS)
def delete(
    chats: Annotated[
        list[str], typer.Argument(metavar="CHAT", help="Chats' ids, or how they begin.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    user: UserOption = "",
) -> None:
    """Delete chats for good."""
    with _store() as store:
        found = _find(store, chats, user)
        if not yes:
            for chat in found:
                typer.echo(chat_text.list_line(chat))
            typer.confirm(f"Delete {counted(len(found), 'chat')} for good?", abort=True)
        for chat in found:
            store.delete_chat(chat.id)
    typer.echo(f"{counted(len(found), 'chat')} deleted")


@app.command(context_settings=HELP_OPTIONS)
def stats(
    user: UserOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show how much there is, and what the cache saved."""
    with _store() as store:
        figures = store.stats(user)
    if as_json:
        typer.echo(json_line(asdict(figures), sys.stdout))
    else:
        typer.echo(chat_text.stats_text(figures))


def _store() -> Store:
    return Store(default_path())


def _find(store: Store, beginnings: Sequence[str], user: str) -> list[Chat]:
    """The chats whose ids begin so, each once; raises ChatNotFound where of one beginning there is none, or several."""
    chats = store.chats(user=user, archived=None)
    found: dict[str, Chat] = {}
    for beginning in beginnings:
        matching = [chat for chat in chats if beginning and chat.id.startswith(beginning.lower())]
        if not matching:
            raise ChatNotFound(f"no chat's id begins with {beginning!r}; `paged-chat sessions list` shows them")
        if len(matching) > 1:
            raise ChatNotFound(f"the ids of {len(matching)} chats begin with {beginning!r}; give more of it")
        found[matching[0].id] = matching[0]
    return list(found.values())


def _with_trees(store: Store, chats: Sequence[Chat], only_shown: bool) -> Iterator[tuple[Chat, MessageTree]]:
    """One chat at a time with its messages, so that no more than one tree is held in memory."""
    for chat in chats:
        tree = store.tree(chat.id)
        yield chat, MessageTree(tree.path(chat.active_leaf_id)) if only_shown else tree


def _read_standard_input() -> porting.ReadChats:
    if sys.stdin is None:
        raise ImportRefused("standard input is closed: give a file instead of -")
    assert isinstance(sys.stdin.buffer, BufferedReader), "Python opens it so"
    return porting.read_stream(sys.stdin.buffer, "standard input")


@contextmanager
def _standard_output() -> Iterator[TextIO]:
    """Standard output as UTF-8 with line ends as they are, whatever the terminal's settings."""
    if sys.stdout is None:
        raise ExportRefused("standard output is closed: give a file with --output")
    out = TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="")
    try:
        yield out
    finally:
        out.detach()
