"""What people install: the wheel holds the program and nothing else, the source distribution builds it again."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
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
    assert "Warning: " not in done.stderr
    [built] = into.iterdir()
    return built


@dataclass(frozen=True)
class Distributions:
    wheel: Path
    source: Path  # where the source distribution was unpacked
    wheel_of_source: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    folder = tmp_path_factory.mktemp("built")
    checkout = folder / "checkout"
    # Also what tests and programs leave there: it mustn't come along.
    left_out = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, checkout, ignore=left_out)
    (checkout / "app" / "web" / "__pycache__").mkdir(exist_ok=True)
    (checkout / "app" / "web" / "__pycache__" / "page.cpython-311.pyc").write_bytes(b"")
    with tarfile.open(build("sdist", checkout, folder / "sdist")) as archive:
        archive.extractall(folder, filter="data")
    source = folder / f"paged_chat-{PROJECT['version']}"
    return Distributions(
        build("wheel", checkout, folder / "wheel"), source, build("wheel", source, folder / "wheel-of-source")
    )


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def program_files() -> dict[str, bytes]:
    """Every file of the packages, under the name by which it is imported or read."""
    return {
        f"paged_chat/{path.relative_to(ROOT).as_posix()}": path.read_bytes()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(built):
    found = contents(built.wheel)
    about = {name for name in found if name.startswith(f"{INFO}/")}
    assert {name: found[name] for name in found.keys() - about} == program_files()
    assert about == {
        f"{INFO}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt")
    } | {f"{INFO}/licenses/LICENSE"}


def test_the_wheel_says_what_it_is(built):
    found = contents(built.wheel)
    about = Parser().parsestr(found[f"{INFO}/METADATA"].decode())
    assert (about["Name"], about["License-Expression"]) == ("paged-chat", "Apache-2.0")
    assert about["Requires-Python"] == "<3.15,>=3.11"
    assert about.get_payload().startswith("# paged-chat\n")
    assert found[f"{INFO}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    entry_points = found[f"{INFO}/entry_points.txt"].decode()
    assert "[console_scripts]\npaged-chat = paged_chat.app.cli:main\n" in entry_points
    for name in PROJECT["entry-points"]["paged_chat.commands"]:
        assert f"\n{name} = paged_chat." in entry_points


def test_the_source_distribution_builds_the_same_wheel(built):
    again = contents(built.wheel_of_source)
    del again[f"{INFO}/RECORD"]
    assert again.items() <= contents(built.wheel).items()
    assert len(again) == len(contents(built.wheel)) - 1


def test_the_source_distribution_can_be_tested(built):
    for name in ("tests", "docs"):
        for path in (ROOT / name).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert (built.source / path.relative_to(ROOT)).read_bytes() == path.read_bytes()
    assert {"Makefile", "CHANGELOG.md", "README.md", "LICENSE", "pyproject.toml"} <= set(os.listdir(built.source))
    assert list(built.source.rglob("*.pyc")) == []
