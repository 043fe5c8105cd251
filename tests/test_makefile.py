"""What `make` does before anything of ours runs: it finds a Python, makes an environment, and says what is missing.

A script stands for the interpreter: it notes what it is called with, and makes an environment in which it stands too.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CALLS = "calls.txt"

PYTHON = f"""#!/bin/sh
case "$*" in
-c*) exec {sys.executable} "$@" ;;
"-m venv"*)
    echo "venv $4" >> {CALLS}
    rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python"
    [ ! -e no-ensurepip ] || exit 1
    printf '#!/bin/sh\\necho "pip 99 from %s/lib"\\n' "$PWD/$4" > "$4/bin/pip"
    printf '#!/bin/sh\\necho "paged-chat $*" >> {CALLS}\\n' > "$4/bin/paged-chat"
    chmod +x "$4/bin/pip" "$4/bin/paged-chat" ;;
"-m pip install"*)
    shift 3
    echo "install $*" >> {CALLS}
    [ ! -e no-network ] || exit 1 ;;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


class Checkout:
    """A folder with the Makefile and nothing else, where only some programs can be found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder.parent / "programs"
        self.programs.mkdir()
        for name in ("sh", "grep", "cat", "tee", "rm", "mkdir", "cp", "chmod"):
            found = shutil.which(name)
            assert found is not None
            (self.programs / name).symlink_to(found)
        folder.mkdir()
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)

    def has_python(self, name: str = "python3", script: str = PYTHON) -> None:
        (self.programs / name).write_text(script)
        (self.programs / name).chmod(0o755)

    def make(self, *arguments: str) -> tuple[int, str, list[str]]:
        """(the exit code, what was said, what was done)"""
        (self.folder / CALLS).write_text("")
        make = shutil.which("make")
        assert make is not None
        done = subprocess.run(
            [make, *arguments],
            cwd=self.folder,
            env={"PATH": str(self.programs), "PWD": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, (self.folder / CALLS).read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(Path(os.path.realpath(tmp_path)) / "a checkout")


INSTALLED = ["venv .venv", "install --editable ."]
OPENED = ["paged-chat web"]


def test_the_first_call_installs_and_the_second_one_starts_at_once(checkout):
    checkout.has_python()
    assert checkout.make("web") == (0, "", INSTALLED + OPENED)
    assert checkout.make("web") == (0, "", OPENED)


def test_what_tests_need_comes_with_the_first_of_them(checkout):
    checkout.has_python()
    checkout.make("web")
    assert checkout.make("install") == (0, "", ["install --editable .[test]"])
    assert checkout.make("install")[2] == []
    assert checkout.make("web")[2] == OPENED


def test_other_dependencies_are_installed_at_the_next_call(checkout):
    checkout.has_python()
    checkout.make("web")
    newer = (checkout.folder / ".venv" / ".installed").stat().st_mtime + 10
    os.utime(checkout.folder / "pyproject.toml", (newer, newer))
    assert checkout.make("web")[2] == ["install --editable .", *OPENED]


def test_the_small_build_of_torch_is_asked_for(checkout):
    checkout.has_python()
    _, _, calls = checkout.make("web", "TORCH=cpu")
    assert calls[1] == "install --extra-index-url https://download.pytorch.org/whl/cpu --editable ."


def test_without_a_python_that_suits_it_says_which_and_how_to_name_one(checkout):
    code, said, calls = checkout.make("web")
    assert (code, calls) == (2, [])
    assert "paged-chat needs Python 3.11 to 3.14, and python3 isn't one. Install one" in said
    assert "or name yours: make web PYTHON=/path/to/python3.12" in said


def test_where_python3_is_too_old_another_one_is_taken(checkout):
    checkout.has_python("python3", "#!/bin/sh\nexit 1\n")
    checkout.has_python("python3.12")
    assert checkout.make("web") == (0, "", INSTALLED + OPENED)
    shutil.rmtree(checkout.folder / ".venv")
    code, said, _ = checkout.make("web", "PYTHON=python3")  # a wish is a wish
    assert code == 2
    assert "and python3 isn't one" in said


def test_without_venv_it_says_what_to_install_and_what_is_half_made_is_made_anew(checkout):
    checkout.has_python()
    (checkout.folder / "no-ensurepip").touch()
    code, said, calls = checkout.make("tui")
    assert (code, calls) == (2, ["venv .venv"])
    assert "apt install python3-venv; then again: make tui" in said
    (checkout.folder / "no-ensurepip").unlink()
    assert checkout.make("tui") == (0, "", [*INSTALLED, "paged-chat tui"])


def test_without_a_network_it_says_what_it_needs_and_goes_on_later(checkout):
    checkout.has_python()
    (checkout.folder / "no-network").touch()
    code, said, calls = checkout.make("web", "TORCH=cpu")
    assert (code, len(calls)) == (2, 2)
    assert "The installation isn't finished; the reason stands above. It needs a network" in said
    assert "To go on from here: make web TORCH=cpu" in said
    (checkout.folder / "no-network").unlink()
    assert checkout.make("web") == (0, "", ["install --editable .", *OPENED])


def test_a_folder_that_was_moved_gets_an_environment_of_its_own(checkout):
    checkout.has_python()
    checkout.make("web")
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved"))
    assert checkout.make("web") == (0, "", INSTALLED + OPENED)
    assert checkout.make("web")[2] == OPENED


def test_make_alone_says_what_can_be_made(checkout):
    for name in ("sed", "expand"):
        found = shutil.which(name)
        assert found is not None
        (checkout.programs / name).symlink_to(found)
    code, said, calls = checkout.make()
    assert (code, calls) == (0, [])
    assert "web         Open the chat page" in said
    assert checkout.make("help")[1] == said
