"""What holds for the options of every command: each has help, and refuses what it can't be before anything begins."""

from collections.abc import Iterator

import pytest
from typer.main import get_command

from paged_chat.app import cli
from paged_chat.app.commands import bench, sessions
from paged_chat.engine import config, request
from paged_chat.engine.number_range import NumberRange, shown


def refused_of(allowed: NumberRange) -> list[str]:
    """The nearest values that a range doesn't have on both sides, and what is no number of its kind."""
    below = allowed.least if allowed.open_below else allowed.least - 1
    return [
        str(below),
        str(allowed.most + 1),
        "",
        "many",
        "nan",
        "1" + 40 * "0",
        *(["1.5"] if allowed.is_whole else []),
    ]


NAMES = sorted(cli.command_entry_points())
NUMBERS = {
    **{{"n": "-n"}.get(field, "--" + field.replace("_", "-")): allowed for field, allowed in request.RANGES.items()},
    "--num-blocks": config.RANGES["num_blocks"],
    "--port": NumberRange(1, 65535),
    "--limit": sessions.LIMITS,
    "--rounds": bench.ROUNDS,
}
CHOICES = {
    "--device": ("auto, cpu, cuda or cuda:N", ["tpu", "cuda:", "cuda:-1", "CPU"]),
    "--dtype": ("auto, float32, bfloat16, float16", ["float8", "Float32"]),
    "--weights": ("auto, dense, int8, int4", ["int2"]),
    "--kernels": ("auto, triton, cpu, reference", ["fast"]),
    "--early-stopping": ("one of true, false, never", ["perhaps", "1"]),
    "--engine": ("one of ", ["theirs", "OWN"]),  # in the order of what is the default
    "--format": ("one of json, markdown", ["xml"]),
}
# What else can't be, and what is said of it.
OTHERS = {
    "--model": ("a name or a path", [""]),
    "--stop": ("strings that aren't empty", [""]),
    "--output": ("must name a file", [""]),
    "--json": ("must name a file", [""]),
    "--auth-file": ("must name a file", [""]),
    "--host": ("an address, such as 127.0.0.1", [""]),
}
REFUSED = {
    **{option: (str(allowed), refused_of(allowed)) for option, allowed in NUMBERS.items()},
    **{option: (words, [*values, "", "x" * 3000]) for option, (words, values) in CHOICES.items()},
    **OTHERS,
}
# Any text is one of these; --auth is refused without its value, and files to compare in pairs.
ANY_TEXT = {"--system", "--tag", "--user", "--auth", "--compare"}
ARGUMENTS = {
    "ask": ["hello"],
    "bench": ["workload.json"],
    "sessions search": ["hello"],
    "sessions export": ["--all"],
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


def all_commands(command: object, path: str) -> Iterator[tuple[str, object]]:
    """Those that do something, each with the words that lead to it."""
    subs = getattr(command, "commands", {})
    if not subs:
        yield path, command
    for name, sub in subs.items():
        yield from all_commands(sub, f"{path} {name}")


COMMANDS = dict(
    found for name in NAMES for found in all_commands(get_command(cli.command_entry_points()[name].load()), name)
)


def value_options(command: object) -> list[str]:
    """The first name of each option that takes a value."""
    parameters = [parameter for parameter in command.params if parameter.param_type_name == "option"]  # type: ignore[attr-defined]
    return [parameter.opts[0] for parameter in parameters if not parameter.is_flag]


def test_of_every_option_it_is_known_what_it_refuses():
    found = {option for command in COMMANDS.values() for option in value_options(command)}
    assert found == REFUSED.keys() | ANY_TEXT


def given(option: str, value: object) -> list[str]:
    """As it is written on a command line; behind = a value may begin with a minus."""
    return [f"{option}={value}"] if option.startswith("--") else [option, str(value)]


@pytest.mark.parametrize("path", [path for path in COMMANDS if REFUSED.keys() & set(value_options(COMMANDS[path]))])
def test_what_an_option_can_not_be_is_refused_with_its_name_the_value_and_what_it_may_be(
    path, run_cli, scripted, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workload.json").write_text(
        '{"name": "w", "steps": [{"chat": "a", "append": [5], "append_end": [], "reply_tokens": 1}]}'
    )
    for option in REFUSED.keys() & set(value_options(COMMANDS[path])):
        allowed, values = REFUSED[option]
        for value in values:
            ended = run_cli(*path.split(), *given(option, value), *ARGUMENTS.get(path, []))
            said = " ".join(ended.err.split())
            assert (ended.code, ended.out) == (2, ""), f"{option} {value!r}: {said}"
            assert option in said
            assert allowed in said
            assert shown(value) in said
    assert scripted.configs == []


@pytest.mark.parametrize("path", [path for path in COMMANDS if NUMBERS.keys() & set(value_options(COMMANDS[path]))])
def test_the_ends_of_a_range_are_in_it(path):
    command = COMMANDS[path]
    options = NUMBERS.keys() & set(value_options(command))
    least = {option: NUMBERS[option].least + (1e-9 if NUMBERS[option].open_below else 0) for option in options}
    most = {option: NUMBERS[option].most for option in options}
    for ends in (least, most):
        words = [word for option, value in ends.items() for word in given(option, value)]
        taken = command.make_context(path, [*words, *ARGUMENTS.get(path, [])]).params
        assert {option: taken[option.strip("-").replace("-", "_")] for option in options} == ends


@pytest.mark.parametrize(
    ("words", "option", "reason"),
    [
        (("sessions", "import", ""), "FILE", "must name a file, not ''"),
        (("bench", ""), "WORKLOAD.json", "must name a file, not ''"),
        (("bench", "--compare", "", ""), "--compare", "must name two files, not ''"),
        (("serve", "--host", "no.such..host"), "--host", "no.such..host is no address of this machine"),
        (("web", "--host", "203.0.113.7", "--auth", "ann:her-password"), "--host", "203.0.113.7 is no address of this"),
        (("serve", "--auth", "ann"), "--auth", "must be USER:PASSWORD, neither of them empty"),
        (("web", "--auth", ":her-password"), "--auth", "must be USER:PASSWORD, neither of them empty"),
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
