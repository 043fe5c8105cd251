"""Show what this machine has and what is missing; with --kernels check them."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated

import typer

from paged_chat.engine.config import DEFAULT_MODEL, EngineConfig
from paged_chat.engine.errors import PagedChatError
from paged_chat.engine.home import home
from paged_chat.engine.model import catalog

from ..imports import import_engine
from ..terminal_text import json_line
from .engine_options import DeviceOption, DtypeOption, ModelOption, from_options
from .help_option import HELP_OPTIONS

if TYPE_CHECKING:
    from paged_chat.engine.hardware import Device, ResolvedConfig
    from paged_chat.engine.kernel_check import KernelCheck

    from ..troubles import Trouble

app = typer.Typer(add_completion=False, rich_markup_mode=None)

PACKAGES = (
    "torch",
    "triton",
    "numba",
    "numpy",
    "transformers",
    "tokenizers",
    "safetensors",
    "gguf",
    "gradio",
    "textual",
    "sqlite-utils",
)
EXIT_FAULT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `doctor` found out."""

    paged_chat: str
    python: str
    system: str
    packages: dict[str, str | None]  # None where a package isn't installed
    devices: list[Device]
    uses: ResolvedConfig | None
    home: str
    home_free_bytes: int | None
    model: str
    model_path: str | None
    checked: list[str]  # ways to compute that give the right results here, a line each
    slower: list[str]  # what is wrong with the others, which others replace
    troubles: list[Trouble]

    @property
    def has_fault(self) -> bool:
        return any(trouble.is_fault for trouble in self.troubles)


@app.command(context_settings=HELP_OPTIONS)
def doctor(
    with_kernels: Annotated[
        bool, typer.Option("--kernels", help="Run each kernel against the reference: errors and times.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    model: ModelOption = DEFAULT_MODEL,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
) -> None:
    """Show what this machine has and what is missing; with --kernels check them.

    Exits with 1 where something keeps the app from working.
    """
    config = from_options(lambda: EngineConfig(model=model, device=device, dtype=dtype))
    report = examine(config)
    checks: list[KernelCheck] = []
    if not as_json:
        show_report(report)
    if with_kernels and report.uses is not None:
        from paged_chat.engine.kernel_check import check_kernels

        found = check_kernels(config)
        checks = list(found if as_json else _shown(found))
    if as_json:
        shown = asdict(report)
        if with_kernels:
            shown["kernels"] = [{**asdict(check), "passed": check.passed} for check in checks]
        print(json_line(shown, sys.stdout))
    if report.has_fault or not all(check.passed for check in checks):
        raise typer.Exit(EXIT_FAULT)


def examine(config: EngineConfig) -> Report:
    """Looks at everything and changes nothing; a part that is broken becomes a fault, not an exception."""
    import_engine()
    from paged_chat.engine.hardware import kernel_paths, list_devices, resolve_config

    from ..troubles import Trouble, find_troubles

    devices = list_devices()
    troubles: list[Trouble] = []
    try:
        uses = resolve_config(config)
    except PagedChatError as error:
        uses = None
        troubles.append(
            Trouble(str(error), "`paged-chat doctor` without --device shows those there are", is_fault=True)
        )
    folder = home()
    used_names = () if uses is None else (uses.device, f"{uses.device}:0")
    troubles += find_troubles(config.model, next((device for device in devices if device.name in used_names), None))
    checked, slower = kernel_paths()
    return Report(
        paged_chat=version("paged-chat"),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        packages={name: _installed(name) for name in PACKAGES},
        devices=devices,
        uses=uses,
        home=str(folder),
        home_free_bytes=shutil.disk_usage(folder).free if os.path.isdir(folder) else None,
        model=config.model,
        model_path=_path_of(config.model),
        checked=checked,
        slower=slower,
        troubles=troubles,
    )


def _path_of(model: str) -> str | None:
    try:
        return str(catalog.model_path(model))
    except PagedChatError:
        return None


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def show_report(report: Report) -> None:
    print(f"paged-chat {report.paged_chat}, Python {report.python}, {report.system}")
    print("  ".join(f"{name} {number or '-'}" for name, number in report.packages.items()))
    print()
    for device in report.devices:
        free = "" if device.free_bytes is None else f", {device.free_bytes / 2**30:.1f} GiB free"
        print(f"{device.name:<7} {device.description}{free}")
    if report.uses is not None:
        print(f"uses    device {report.uses.device}, dtype {report.uses.dtype}, kernels {report.uses.kernels}")
    free = "" if report.home_free_bytes is None else f", {report.home_free_bytes / 2**30:.1f} GiB free"
    print(f"home    {report.home}{free}")
    absent = "not here" if report.has_fault else "not here yet; fetched when first used"
    print(f"model   {report.model}: {report.model_path or absent}")
    for line in report.checked:
        print(f"checked {line}")
    for line in report.slower:
        typer.secho(f"slower  {line}", fg="yellow")
    for trouble in sorted(report.troubles, key=lambda trouble: trouble.is_fault):
        label, colour = ("fault  ", "red") if trouble.is_fault else ("warning", "yellow")
        typer.secho(f"{label} {trouble.words}", fg=colour)
        print(f"        remedy: {trouble.remedy}")
    if not report.has_fault:
        typer.secho("ready   nothing keeps paged-chat from working here", fg="green")
    sys.stdout.flush()


def _shown(checks: Iterator[KernelCheck]) -> Iterator[KernelCheck]:
    """Passes the checks on, a line printed for each as it comes."""
    print(f"\n{'kernel':<18} {'shape':<42} {'error':>9} {'ms':>9} {'reference ms':>13}")
    for check in checks:
        if check.fault is not None:
            line = f"{check.kernel:<18} {check.shape:<42} {check.fault}"
        else:
            assert check.relative_error is not None
            line = (
                f"{check.kernel:<18} {check.shape:<42} {check.relative_error:>9.1e} {check.time_ms:>9.3f} "
                f"{check.reference_ms:>13.3f}" + ("" if check.passed else f"  over {check.tolerance:g}")
            )
            if check.gb_per_s is not None and check.copy_gb_per_s is not None:
                share = check.gb_per_s / check.copy_gb_per_s
                line += f"  reads {check.gb_per_s:,.0f} GB/s, {share:.0%} of a copy's {check.copy_gb_per_s:,.0f}"
        typer.secho(line, fg=None if check.passed else "red")
        yield check
