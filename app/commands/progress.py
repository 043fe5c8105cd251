"""How far a download or a model's loading has come, as a bar on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from paged_chat.engine.progress import LoadProgress, OnProgress, ignore_progress

from ..load_words import STAGE_WORDS


@contextmanager
def load_progress() -> Iterator[OnProgress]:
    """A listener that draws a bar for each stage, gone again at the end; silent where stderr isn't a terminal."""
    if not sys.stderr.isatty():
        yield ignore_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        console=Console(stderr=True),
        transient=True,
    )
    sizes, speed = DownloadColumn(), TransferSpeedColumn()
    tasks: dict[str, TaskID] = {}

    def show(progress: LoadProgress) -> None:
        if progress.stage not in tasks:
            title = STAGE_WORDS[progress.stage].capitalize()
            tasks[progress.stage] = bar.add_task(title, total=progress.total, figures="")
            if progress.stage == "warm up" and progress.total is None:
                # Kernels are compiled and measured for this processor.
                bar.update(tasks[progress.stage], figures="the first time this takes a minute or two")
        task_id = tasks[progress.stage]
        bar.update(task_id, completed=progress.done, total=progress.total)
        if progress.stage == "download":
            task = bar.tasks[bar.task_ids.index(task_id)]
            bar.update(task_id, figures=f"{sizes.render(task)} {speed.render(task)}")

    with bar:
        yield show
