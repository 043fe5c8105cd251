"""List, fetch, find and remove models."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from paged_chat.engine.model import catalog

from ..counted import megabytes
from ..terminal_text import json_line
from .help_option import HELP_OPTIONS
from .progress import load_progress

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings=HELP_OPTIONS,
    help="List, fetch, find and remove models.",
)

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="Catalogue name, hub id, or path.", show_default=False)
]


@app.command("list", context_settings=HELP_OPTIONS)
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each model.")] = False,
) -> None:
    """Show the catalogue, and the hub models that are on this machine."""
    models = catalog.list_models()
    if as_json:
        for model in models:
            fields = {
                "name": model.name,
                "origin": model.origin,
                "description": model.description,
                "path": None if model.path is None else str(model.path),
                "num_bytes": model.num_bytes,
            }
            print(json_line(fields, sys.stdout))
        return
    width = max(len(model.name) for model in models)
    for model in models:
        state = "here" if model.path is not None else "to fetch"
        print(f"{model.name:<{width}}  {megabytes(model.num_bytes):>9}  {state:<8}  {model.description}")


@app.command(context_settings=HELP_OPTIONS)
def pull(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Catalogue name, hub id, or path.", show_default=False)
    ],
) -> None:
    """Fetch models ahead of their first use, and print where they are."""
    for model in models:
        with load_progress() as on_progress:
            path = catalog.pull_model(model, on_progress)
        print(path)


@app.command(context_settings=HELP_OPTIONS)
def path(model: ModelArgument) -> None:
    """Print where a model is; exit with 1 if it isn't here."""
    print(catalog.model_path(model))


@app.command(context_settings=HELP_OPTIONS)
def rm(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Catalogue name, hub id, or path.", show_default=False)
    ],
) -> None:
    """Remove what was fetched and prepared, never your own files."""
    for model in models:
        num_freed = catalog.remove_model(model)
        print(f"{model}: {megabytes(num_freed)} freed")
