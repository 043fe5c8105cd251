"""A comparison as a table, for people and for programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any, Literal, TypeAlias

from .comparison import ComparedReply, Comparison

TableForm: TypeAlias = Literal["md", "json", "csv"]

COLUMNS = ("reply", "settings", "tokens", "reused", "computed", "TTFT ms", "tok/s", "finish")
_NUM_WORD_COLUMNS = 2  # the others but the last are numbers, which stand to the right


def table_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """A row of words for each reply, under COLUMNS; what isn't known is ""."""
    return [_row(reply) for reply in comparison.replies]


def write_table(comparison: Comparison, form: TableForm) -> str:
    """The comparison as a file of this form holds it, texts too."""
    return WRITERS[form](comparison)


def _markdown(comparison: Comparison) -> str:
    rules = ["---" if i < _NUM_WORD_COLUMNS or name == "finish" else "---:" for i, name in enumerate(COLUMNS)]
    lines = [f"# {len(comparison.replies)} replies compared", ""]
    lines += [f"> {line}".rstrip() for line in comparison.question.splitlines()]
    lines += ["", _markdown_row(COLUMNS), _markdown_row(rules)]
    lines += [_markdown_row([_cell(value) for value in row]) for row in table_rows(comparison)]
    for reply in comparison.replies:
        lines += ["", f"## {reply.name}", "", reply.text.strip()]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")


def _json(comparison: Comparison) -> str:
    replies = [_record(reply) for reply in comparison.replies]
    record = {"question": comparison.question, "replies": replies}
    return json.dumps(record, ensure_ascii=False, indent=2) + "\n"


def _record(reply: ComparedReply) -> dict[str, Any]:
    cost = reply.cost
    return {
        "name": reply.name,
        "settings": reply.settings,
        "tokens": None if cost is None else cost.num_generated_tokens,
        "reused": None if cost is None else cost.num_cached_tokens,
        "computed": None if cost is None else cost.num_computed_tokens,
        "ttft_ms": None if cost is None else cost.ttft_ms,
        "tokens_per_s": None if cost is None else cost.tokens_per_s,
        "finish": reply.finish,
        "text": reply.text,
    }


def _csv(comparison: Comparison) -> str:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, "text"])
    for row, reply in zip(table_rows(comparison), comparison.replies, strict=True):
        writer.writerow([*row, reply.text])
    return out.getvalue()


def _row(reply: ComparedReply) -> tuple[str, ...]:
    cost = reply.cost
    if cost is None:
        figures: tuple[float | None, ...] = (None,) * 5
    else:
        figures = (
            cost.num_generated_tokens,
            cost.num_cached_tokens,
            cost.num_computed_tokens,
            cost.ttft_ms,
            cost.tokens_per_s,
        )
    return (reply.name, reply.settings_words, *map(_figure, figures), reply.finish)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


WRITERS: dict[TableForm, Callable[[Comparison], str]] = {"md": _markdown, "json": _json, "csv": _csv}
