"""Every example of a command in the documentation is run: it must end well, and print what stands below it.

The engine is a scripted one, and of the servers and the terminal screen only the options are read: what these do is
tested elsewhere, and none of them ends by itself.
"""

import io
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.main import get_command

import chat_samples
import tiny_gguf
from paged_chat.app import cli
from paged_chat.app.chats import MessageTree
from paged_chat.app.store import chat_table
from paged_chat.app.store.store import Store, default_path
from paged_chat.engine import config, kernel_check, request

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STAY_OPEN = ("web", "serve", "tui")
CLOCK = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
SUBSTITUTION = re.compile(r"\$\(paged-chat ([^)]*)\)")


@dataclass(frozen=True)
class Example:
    page: str
    section: str
    line: str
    shown: tuple[str, ...]  # what stands below it

    @property
    def command(self) -> str:
        """What comes behind the prompt and, where there is one, the pipe."""
        return self.line.rpartition(" | ")[2]

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command, comments=True)[1:]


def examples() -> Iterator[Example]:
    """Of `console` blocks the lines behind a $, of `sh` blocks those that begin with our name."""
    for page in PAGES:
        section = ""
        for heading, kind, body in re.findall(
            r"^## ([^\n]+)$|^```(console|sh)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL
        ):
            section = heading or section
            if kind == "console":
                for typed, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
                    yield Example(page.name, section, typed, tuple(output.splitlines()))
            else:
                yield from (Example(page.name, section, line, ()) for line in body.splitlines())


ALL = [example for example in examples() if example.command.startswith("paged-chat ") and example.line[-1] != "&"]


def blocks() -> dict[tuple[str, str], list[Example]]:
    """By page and section: the examples of one go on from each other."""
    found: dict[tuple[str, str], list[Example]] = {}
    for example in ALL:
        found.setdefault((example.page, example.section), []).append(example)
    return found


BLOCKS = blocks()


@pytest.fixture
def desk(tmp_path, home, monkeypatch):
    """A person's folder, home and data with what the examples name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "models").mkdir()
    tiny_gguf.build("llama", tmp_path / "models" / "some-model-Q4_K.gguf")
    (tmp_path / "users.txt").write_text("ann:her-password\n")
    talk = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning."}]
    (tmp_path / "conversations.json").write_text(json.dumps(talk))
    step = {"chat": "a", "append": [5, 6, 7], "append_end": [2], "reply_tokens": 2}
    (tmp_path / "workload.json").write_text(json.dumps({"name": "two words", "steps": [step]}))
    ids = iter(["3f9c2a71" + 24 * "0", "81d00b5e" + 24 * "0"])
    with monkeypatch.context() as patch, closing(Store(default_path())) as store:
        patch.setattr(chat_table.secrets, "token_hex", lambda size: next(ids))
        trip = MessageTree(
            [chat_samples.message(1, None, "three days in Alfama"), chat_samples.reply(2, 1, "Day one: the castle.")]
        )
        museum = MessageTree([chat_samples.message(1, None, "Which museum is quiet on a Monday?")])
        store.import_chats(
            [
                chat_samples.imported(chat_samples.chat(trip, is_pinned=True, tags=("travel",)), trip),
                chat_samples.imported(chat_samples.chat(museum, title="Which museum is quiet on a Monday?"), museum),
            ]
        )
    monkeypatch.setattr(kernel_check, "check_kernels", lambda config: iter(()))
    return tmp_path


def put_default_model(home: Path) -> None:
    """A file of the right name and size, so that nothing is fetched."""
    file = home / "models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.parent.mkdir(parents=True)
    with file.open("wb") as sparse:
        sparse.truncate(98_362_432)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block[0]} {block[1]}".strip())
def test_the_examples_run_and_print_what_they_show(block, desk, home, run_cli, scripted, monkeypatch):
    if any("models" in example.words for example in BLOCKS[block]):
        put_default_model(home)
    for example in BLOCKS[block]:
        words = [
            SUBSTITUTION.sub(lambda inner: run_cli(*shlex.split(inner[1])).out.strip(), word) for word in example.words
        ]
        if words[0] in STAY_OPEN:
            get_command(cli.command_entry_points()[words[0]].load()).make_context(words[0], words[1:])
            continue
        if words[0] == "ask":
            for reply in [line for line in example.shown if line and line[0] not in ">["]:
                scripted.enqueue(reply)
        monkeypatch.setattr("sys.stdin", io.StringIO("read from a pipe\n"))
        ended = run_cli(*words)
        is_refusal = any(line.startswith("Error: ") for line in example.shown)
        assert ended.code == (2 if is_refusal else 0), f"{example.line}\n{ended.err}"
        if example.shown:
            # Figures in brackets are for people at a terminal alone.
            shown = [line for line in example.shown if not line.startswith("[")]
            printed = ended.err.splitlines()[-1:] if is_refusal else ended.out.splitlines()
            assert [CLOCK.sub("", line) for line in printed] == [CLOCK.sub("", line) for line in shown]


def option_names(command: object) -> Iterator[tuple[str, ...]]:
    """The names of each option of a command and of its subcommands."""
    for parameter in command.params:  # type: ignore[attr-defined]
        if names := tuple(name for name in parameter.opts if name.startswith("-")):
            yield names
    for sub in getattr(command, "commands", {}).values():
        yield from option_names(sub)


MODEL_OPTIONS = {"--model", "--device", "--dtype", "--weights", "--kernels", "--num-blocks"}


@pytest.mark.parametrize("name", sorted(cli.command_entry_points()))
def test_every_option_of_a_command_stands_in_an_example(name):
    used = {word.partition("=")[0] for example in ALL if name in example.words for word in example.words}
    command = get_command(cli.command_entry_points()[name].load())
    own = [names for names in option_names(command) if not MODEL_OPTIONS & set(names)]
    assert [names for names in own if not used & set(names)] == []


def test_the_options_of_all_commands_stand_in_an_example():
    used = {word for example in ALL for word in example.words}
    assert MODEL_OPTIONS - used == set()
    assert {"--home", "--version"} <= used


@pytest.mark.parametrize(
    ("field", "allowed"), [*request.RANGES.items(), ("num_blocks", config.RANGES["num_blocks"])], ids=lambda value: ""
)
def test_the_range_of_a_number_is_documented(field, allowed):
    option = {"n": "-n"}.get(field, "--" + field.replace("_", "-"))
    [row] = re.findall(rf"^\| .*`{option} [A-Z]+`.*$", (ROOT / "docs" / "commands.md").read_text(), re.MULTILINE)
    assert f"({allowed.words})" in row
