"""What people install: the wheel holds the program and nothing else, the source distribution builds it again."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("kernels", "engine", "app", "tui")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INFO = f"paged_chat-{PROJECT['version']}.dist-info"
# As `pip wheel --no-build-isolation` does it, without pip and without a network.
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, f'build_{sys.argv[1]}')(sys.argv[2])"


def build(what: str, source: Path, into: Path) -> Path:
    """The file that building a "wheel" or an "sdist" of the sources gives."""
    into.mkdir()
    command = [sys.executable, "-c", BUILD, what, str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "is absent from the `packages` configuration" not in done.stderr
    [built] = into.iterdir()
    return built


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The sources, with something beside them that a program left there: that mustn't come along."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info"))
    (folder / "app" / "web" / "__pycache__").mkdir()
    (folder / "app" / "web" / "__pycache__" / "page.cpython-311.pyc").write_bytes(b"")
    return folder


def files_of(*folders: str) -> dict[str, bytes]:
    """What lies in folders of the sources, by its path."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def check_wheel(wheel: Path) -> None:
    """It holds every file of the packages and nothing else, and says what it is."""
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    about = {name.removeprefix(f"{INFO}/"): found.pop(name) for name in list(found) if name.startswith(f"{INFO}/")}
    assert found == {f"paged_chat/{name}": content for name, content in files_of(*PACKAGES).items()}
    assert about.keys() == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
    assert about["licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    metadata = Parser().parsestr(about["METADATA"].decode())
    assert (metadata["Name"], metadata["License-Expression"]) == ("paged-chat", "Apache-2.0")
    assert metadata["Requires-Python"] == "<3.15,>=3.11"
    assert "\n\n# paged-chat\n" in about["METADATA"].decode()
    entry_points = about["entry_points.txt"].decode()
    assert "[console_scripts]\npaged-chat = paged_chat.app.start:main\n" in entry_points
    for name in PROJECT["entry-points"]["paged_chat.commands"]:
        assert f"\n{name} = paged_chat." in entry_points


def test_the_wheel_holds_the_program_and_nothing_else(checkout, tmp_path):
    check_wheel(build("wheel", checkout, tmp_path / "wheel"))


def test_the_source_distribution_can_be_tested_and_builds_the_same_wheel(checkout, tmp_path):
    with tarfile.open(build("sdist", checkout, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / f"paged_chat-{PROJECT['version']}"
    found = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    metadata = {name for name in found if name.startswith("paged_chat.egg-info/")} | {"PKG-INFO", "setup.cfg"}
    beside = {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md", "pyproject.toml"}
    held = files_of(*PACKAGES, "tests", "docs")
    assert found - metadata == held.keys() | beside
    assert {name for name, content in held.items() if (source / name).read_bytes() != content} == set()
    check_wheel(build("wheel", source, tmp_path / "wheel"))


def test_what_is_installed_runs_and_knows_its_commands(checkout, tmp_path):
    """In an environment of its own, which finds what we depend on, and not this checkout."""
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    wheel = build("wheel", checkout, tmp_path / "wheel")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))

    def ran(*command: str) -> str:
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    program = str(environment / "bin" / "paged-chat")
    where = "import paged_chat.tui.app, paged_chat.app.web.assets as assets; print(assets.__path__[0])"
    assert ran(str(python), "-c", where) == f"{packages / 'paged_chat' / 'app' / 'web' / 'assets'}\n"
    assert ran(program, "--version") == f"paged-chat {PROJECT['version']}\n"
    commands = re.findall(r"^  ([a-z]+) ", ran(program, "--help").partition("\nCommands:\n")[2], re.MULTILINE)
    assert commands == sorted(PROJECT["entry-points"]["paged_chat.commands"])
    assert ran(program, "models", "list").startswith("smollm2-135m")
