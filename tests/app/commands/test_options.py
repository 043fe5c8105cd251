"""What holds for the options of every command: each has help, and refuses what it can't be before anything begins."""

from collections.abc import Iterator

import pytest
from typer.main import get_command

from paged_chat.app import cli

NAMES = sorted(cli.command_entry_points())
WITH_ENGINE = [name for name in NAMES if name in ("ask", "bench", "serve", "tui", "web")]
CHOICES = {
    "--device": ("tpu", "cuda:", "cuda:-1", "CPU"),
    "--dtype": ("float8", "Float32"),
    "--weights": ("int2",),
    "--kernels": ("fast",),
}
ALLOWED = {
    "--device": "auto, cpu, cuda or cuda:N",
    "--dtype": "auto, float32, bfloat16, float16",
    "--weights": "auto, dense, int8, int4",
    "--kernels": "auto, triton, cpu, reference",
}


def all_parameters(command: object, path: str) -> Iterator[tuple[str, object]]:
    """Of a command and its subcommands, each with the words that lead to it."""
    for parameter in command.params:  # type: ignore[attr-defined]
        yield f"{path} {parameter.name}", parameter
    for name, sub in getattr(command, "commands", {}).items():
        yield from all_parameters(sub, f"{path} {name}")


@pytest.mark.parametrize("name", NAMES)
def test_every_option_and_argument_has_help(name):
    command = get_command(cli.command_entry_points()[name].load())
    without = [path for path, parameter in all_parameters(command, name) if not getattr(parameter, "help", None)]
    assert without == []


@pytest.mark.parametrize("name", WITH_ENGINE)
@pytest.mark.parametrize(("option", "value"), [(option, value) for option in CHOICES for value in CHOICES[option]])
def test_a_choice_that_there_is_not_is_refused_with_those_there_are(run_cli, name, option, value, tmp_path):
    workload = [str(tmp_path / "workload.json")] if name == "bench" else []
    (tmp_path / "workload.json").write_text(
        '{"name": "w", "steps": [{"chat": "a", "append": [5], "append_end": [], "reply_tokens": 1}]}'
    )
    ended = run_cli(name, option, value, *workload)
    assert ended.code == 2
    words = " ".join(ended.err.split())
    assert f"{option} must be" in words
    assert f"{ALLOWED[option]}, not {value!r}" in words


@pytest.mark.parametrize("name", WITH_ENGINE)
@pytest.mark.parametrize("value", ["1", "-1", "2147483648", "many", "1.5", ""])
def test_a_pool_that_can_be_none_is_refused(run_cli, name, value):
    ended = run_cli(name, "--num-blocks", value)
    assert ended.code == 2
    assert f"'--num-blocks': must be a whole number from 2 to 2147483647, not {value!r}" in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("words", "option", "value", "allowed"),
    [
        ("ask --early-stopping perhaps hello", "--early-stopping", "perhaps", ("true", "false", "never")),
        ("sessions export --all --format xml", "--format", "xml", ("json", "markdown")),
        ("tui --engine theirs", "--engine", "theirs", ("auto", "own", "shared")),
        ("ask --engine theirs hello", "--engine", "theirs", ("auto", "own", "shared")),
    ],
)
def test_other_choices_too(run_cli, words, option, value, allowed):
    ended = run_cli(*words.split())
    assert ended.code == 2
    assert option in ended.err
    assert f"'{value}'" in ended.err
    assert all(one in ended.err for one in allowed)


@pytest.mark.parametrize(
    ("words", "option", "reason"),
    [
        (("sessions", "export", "--all", "-o", ""), "--output", "must name a file, not ''"),
        (("sessions", "import", ""), "FILE", "must name a file, not ''"),
        (("bench", ""), "WORKLOAD.json", "must name a file, not ''"),
        (("bench", "workload.json", "--json", ""), "--json", "must name a file, not ''"),
        (("web", "--auth-file", ""), "--auth-file", "must name a file, not ''"),
        (("serve", "--host", ""), "--host", "must be an address, such as 127.0.0.1, not ''"),
        (("serve", "--auth", "ann"), "--auth", "must be USER:PASSWORD, neither of them empty"),
        (("web", "--auth", ":her-password"), "--auth", "must be USER:PASSWORD, neither of them empty"),
        (
            ("ask", "--early-stopping", "soon", "hi"),
            "--early-stopping",
            "must be one of true, false, never, not 'soon'",
        ),
        (("sessions", "export", "--format", "", "x"), "--format", "must be one of json, markdown, not ''"),
    ],
)
def test_what_an_option_can_not_be_is_refused_before_anything_is_done(run_cli, words, option, reason):
    ended = run_cli(*words)
    assert ended.code == 2
    assert ended.out == ""
    said = " ".join(ended.err.split())
    assert option in said
    assert reason in said
    assert "her-password" not in said


def test_a_result_that_could_not_be_written_is_refused_before_it_is_measured(run_cli, scripted, tmp_path):
    workload = tmp_path / "workload.json"
    workload.write_text('{"name": "w", "steps": [{"chat": "a", "append": [5], "append_end": [], "reply_tokens": 1}]}')
    ended = run_cli("bench", str(workload), "--json", str(tmp_path))
    assert (ended.code, scripted.configs) == (2, [])
    assert f"--json must name a file, and {tmp_path} is a folder" in " ".join(ended.err.split())


def test_the_terminal_screen_without_a_terminal_says_so(run_cli, home):
    ended = run_cli("tui")
    assert ended.code == 1
    assert "Error: paged-chat tui needs a terminal, and its input or its error output is a file or a pipe" in ended.err
