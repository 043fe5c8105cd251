"""The layers of the design, read from the source: an arrow that isn't allowed fails here."""

import ast
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from patience import PATIENCE_S

ROOT = Path(__file__).parent.parent
PACKAGES = ("kernels", "engine", "app", "tui")

# What a package may import of ours. `app` and `tui` see of the layer below only the modules named here.
ALLOWED_PACKAGES = {
    "kernels": {"kernels"},
    "engine": {"engine", "kernels"},
    "app": {"app", "engine"},
    "tui": {"tui", "app"},
}
# `paged_chat.engine` exports the engine itself. These of its modules are public beside it: values that a command needs
# before the engine, and so torch, is imported; where things live on disk; what the machine and its kernels can do.
PUBLIC_ENGINE_MODULES = {
    "paged_chat.engine",
    "paged_chat.engine.compiled_kernels",
    "paged_chat.engine.config",
    "paged_chat.engine.counted",
    "paged_chat.engine.errors",
    "paged_chat.engine.events",
    "paged_chat.engine.hardware",
    "paged_chat.engine.home",
    "paged_chat.engine.kernel_check",
    "paged_chat.engine.model.catalog",
    "paged_chat.engine.model.file_check",
    "paged_chat.engine.model.recommended_sampling",
    "paged_chat.engine.number_range",
    "paged_chat.engine.progress",
    "paged_chat.engine.request",
    "paged_chat.engine.whole_file",
}
# Heavy or layer-bound libraries, and the folders (or files) that may import them.
BOUND_LIBRARIES = {
    "torch": ("kernels", "engine"),
    "triton": ("kernels",),
    "numba": ("kernels",),
    "llvmlite": ("kernels",),
    "transformers": ("engine/model", "engine/text"),
    "gguf": ("engine/model", "engine/text"),
    "tokenizers": ("engine/model", "engine/text"),
    "safetensors": ("engine/model",),
    "jinja2": ("engine/text",),
    "sqlite_utils": ("app",),
    "gradio": ("app/web",),
    "fastapi": ("app/web", "app/api"),
    "textual": ("tui",),
    "typer": ("app", "tui"),
    "rich": ("app", "tui"),
}
# The hard logic, which tests in milliseconds because nothing in it needs torch.
TORCH_FREE = (
    "engine/batch.py",
    "engine/beam_search.py",
    "engine/block_use.py",
    "engine/cache",
    "engine/config.py",
    "engine/counted.py",
    "engine/errors.py",
    "engine/events.py",
    "engine/home.py",
    "engine/number_range.py",
    "engine/prefill_speed.py",
    "engine/progress.py",
    "engine/request.py",
    "engine/scheduler.py",
    "engine/sequence.py",
    "engine/speculation",
    "engine/whole_file.py",
)
HOLDS_TENSORS = {"engine/cache/kv_cache.py", "engine/cache/tiers.py"}

# Where the wall clock is read, to say when something was. Everything that takes time is measured with a clock that
# nobody sets: `time.monotonic`, `time.perf_counter`, `time.thread_time`.
WALL_CLOCK = re.compile(r"\btime\.time(_ns)?\(|\bdatetime\.(now|utcnow|today)\(|\bdate\.today\(")
TELLS_THE_TIME = {
    "app/api/completion_shapes.py",
    "app/cache_view/block_view.py",
    "app/porting/own_json.py",
    "app/porting/reader.py",
    "app/service/chat_library.py",
    "app/service/engine_host.py",
    "app/store/database.py",
    "app/store/rows.py",
    "engine/events.py",
    "engine/model/stale.py",
    "engine/text/template_environment.py",
}


@dataclass(frozen=True)
class Import:
    """One imported module, and where: `line` of `path`, relative to the root."""

    path: str
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def _module_name(path: Path) -> str:
    """The name under which a file of ours is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("paged_chat", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _is_ours(module: str) -> bool:
    relative = Path(*module.split(".")[1:]) if module.startswith("paged_chat.") else None
    return relative is not None and ((ROOT / relative).is_dir() or (ROOT / relative).with_suffix(".py").is_file())


def imports_of(path: Path, source: str | None = None) -> Iterator[Import]:
    """Every import in a file, those inside functions and under TYPE_CHECKING too, relative ones resolved.

    `from package import module` counts as an import of package.module where that is a module of ours.
    """
    place = path.relative_to(ROOT).as_posix()
    package = _module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(source if source is not None else path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(place, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            submodules = [f"{module}.{alias.name}" for alias in node.names if _is_ours(f"{module}.{alias.name}")]
            for name in submodules or [module]:
                yield Import(place, node.lineno, name)


def source_files() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


ALL_IMPORTS = [found for path in source_files() for found in imports_of(path)]


def _is_under(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def arrow_fault(found: Import) -> str | None:
    """Why an import isn't allowed, or None where it is."""
    importer, library = found.path.split("/")[0], found.module.split(".")[0]
    if library in PACKAGES:
        return f"bare {library}: write paged_chat.{library}"
    if library == "paged_chat":
        imported = found.module.split(".")[1]
        if imported not in ALLOWED_PACKAGES[importer]:
            return f"{importer} may import only {', '.join(sorted(ALLOWED_PACKAGES[importer]))}"
        if importer == "app" and imported == "engine" and found.module not in PUBLIC_ENGINE_MODULES:
            return "app may import only the engine's public modules"
    folders = BOUND_LIBRARIES.get(library)
    if folders is not None and not _is_under(found.path, folders):
        return f"{library} belongs under {', '.join(folders)}"
    tensor_library = library in ("torch", "kernels") or found.module.startswith("paged_chat.kernels")
    if tensor_library and _is_under(found.path, TORCH_FREE) and found.path not in HOLDS_TENSORS:
        return "this module must stay free of torch"
    return None


PAGE = (ROOT / "docs" / "architecture.md").read_text()


def defined_names(path: Path) -> Iterator[str]:
    """What a file gives a name to: itself and its folders, classes, functions, their parameters, and variables."""
    yield from path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def test_the_page_on_the_architecture_names_what_there_is():
    spans = set(re.findall(r"`([^`\n]+)`", PAGE))
    ours = [path.relative_to(ROOT).as_posix() for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*")]
    paths = {span for span in spans if re.fullmatch(r"[\w/]+\.(py|js|toml)|\w+/[\w/]+", span)}
    assert len(paths) > 90
    assert {
        path for path in paths if not any(f"/{known}".endswith(f"/{path}") for known in [*ours, "pyproject.toml"])
    } == set()
    written_by_the_program = {"machine.json"}
    of_others = {"typer.Typer", "import engine"}
    names = {
        span for span in spans - paths - written_by_the_program - of_others if re.fullmatch(r"@?[\w.]+(\(\))?", span)
    }
    assert len(names) > 100
    defined = {name for path in source_files() for name in defined_names(path)}
    assert {name for name in names if re.findall(r"\w+", name)[-1] not in defined} == set()


def test_the_page_on_the_architecture_lists_the_engines_public_modules():
    [row] = re.findall(r"^\| `app` \|.*$", PAGE, re.MULTILINE)
    listed = row.rpartition("its modules")[2]
    modules = {name.removeprefix("paged_chat.engine.") for name in PUBLIC_ENGINE_MODULES - {"paged_chat.engine"}}
    assert set(re.findall(r"`([\w.]+)`", listed)) == modules


def test_every_import_follows_the_layers():
    faults = [f"{found}: {fault}" for found in ALL_IMPORTS if (fault := arrow_fault(found))]
    assert faults == []


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("kernels/x.py", "from ..engine import errors", "kernels may import only kernels"),
        ("kernels/x.py", "import paged_chat.engine.errors", "kernels may import only kernels"),
        ("engine/x.py", "from paged_chat.app import cli", "engine may import only engine, kernels"),
        ("engine/x.py", "import kernels", "bare kernels: write paged_chat.kernels"),
        ("engine/x.py", "def f():\n    from engine.errors import PagedChatError", "bare engine"),
        ("engine/x.py", "import transformers", "transformers belongs under engine/model, engine/text"),
        ("engine/cache/x.py", "import torch", "this module must stay free of torch"),
        ("engine/scheduler.py", "from ..kernels import reference", "this module must stay free of torch"),
        ("app/x.py", "from paged_chat.tui import app", "app may import only app, engine"),
        (
            "app/x.py",
            "from paged_chat.engine.scheduler import Scheduler",
            "app may import only the engine's public modules",
        ),
        ("app/x.py", "import torch", "torch belongs under kernels, engine"),
        ("app/x.py", "import gradio as gr", "gradio belongs under app/web"),
        ("tui/x.py", "from paged_chat.engine import Engine", "tui may import only app, tui"),
    ],
)
def test_a_forbidden_arrow_is_found(path, source, fault):
    # The files needn't exist: only their place counts.
    [found] = [f for f in map(arrow_fault, imports_of(ROOT / path, source)) if f]
    assert fault in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("engine/model/x.py", "import torch, transformers, gguf"),
        ("engine/cache/kv_cache.py", "import torch\nfrom ...kernels.backend import Backend"),
        (
            "app/x.py",
            "from paged_chat.engine import Engine\nfrom paged_chat.engine.errors import PagedChatError",
        ),
        ("app/web/page.py", "import gradio"),
        ("tui/x.py", "from paged_chat.app import cli\nimport textual"),
    ],
)
def test_an_allowed_arrow_passes(path, source):
    assert [fault for found in imports_of(ROOT / path, source) if (fault := arrow_fault(found))] == []


def test_the_wall_clock_is_read_only_where_a_moment_is_told():
    reads = {path.relative_to(ROOT).as_posix() for path in source_files() if WALL_CLOCK.search(path.read_text())}
    assert reads == TELLS_THE_TIME


def test_tests_never_import_a_package_by_its_bare_name():
    found = [found for path in sorted((ROOT / "tests").rglob("*.py")) for found in imports_of(path)]
    assert [str(i) for i in found if i.module.split(".")[0] in PACKAGES] == []


def test_the_root_shadows_no_package():
    # A module at the root would put the root on the path, and our `kernels` in front of Hugging Face's.
    assert [path.name for path in ROOT.glob("*.py")] == []
    pytest_options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert pytest_options["pythonpath"] == ["tests/support"]


def test_every_package_folder_is_installed():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {_module_name(path) for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")}
    assert found | {"paged_chat.app.web.assets"} == set(listed)  # which holds no modules, but is installed too
    with_modules = {_module_name(path.parent / "__init__.py") for path in source_files()}
    assert with_modules == found, "a folder with modules has no __init__.py"


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _timed(code: str) -> tuple[str, float]:
    """Its output, and the seconds of the processor it took: a busy machine stretches the wall's."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = _python(code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return output, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_the_hard_logic_imports_no_torch():
    paths = [path.relative_to(ROOT).as_posix() for path in source_files()]
    modules = [_module_name(ROOT / p) for p in paths if _is_under(p, TORCH_FREE) and p not in HOLDS_TENSORS]
    assert len(modules) >= 6
    assert _python(f"import sys, {', '.join(modules)}; print('torch' in sys.modules)") == "False\n"


def test_help_is_instant_and_imports_nothing_heavy():
    code = """
import sys
sys.argv = ["paged-chat", "--help"]
from paged_chat.app.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
heavy = {"torch", "gradio", "transformers", "numba", "textual", "tokenizers", "numpy", "huggingface_hub"}
print("HEAVY", sorted(heavy & set(sys.modules)))
"""
    help_s, bare_s = [], []
    for _ in range(3):
        output, took_s = _timed(code)
        help_s.append(took_s)
        bare_s.append(_timed("import argparse, json, pathlib, typing")[1])
    assert output.splitlines()[-1] == "HEAVY []"
    assert "ask" in output
    # Three times as long; torch alone would be fifty times what any command line needs.
    assert min(help_s) < 10 * min(bare_s)
