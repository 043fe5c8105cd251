"""The documentation says what the program does."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.main import get_command

import paged_chat.engine
from paged_chat.app import cli
from paged_chat.app.bench.workload import load_workload
from paged_chat.engine import config

ROOT = Path(__file__).parent.parent
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
COMMON = COMMANDS.partition("\n## ")[0]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def section(name):
    """A command's own part of the page, from its heading to the next."""
    [body] = re.findall(rf"^## {name}$(.*?)(?=^## |\Z)", COMMANDS, re.MULTILINE | re.DOTALL)
    return body


def options_of(command):
    """The names of every option, those of subcommands too."""
    own = {name for parameter in command.params for name in parameter.opts if name.startswith("-")}
    return own.union(*(options_of(sub) for sub in getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("name", sorted(cli.command_entry_points()))
def test_every_command_is_documented_with_an_example_and_every_option(name):
    command = get_command(cli.command_entry_points()[name].load())
    assert f"$ paged-chat {name}" in section(name)
    documented = COMMON + section(name)
    assert {option for option in options_of(command) if f"`{option}" not in documented} == set()
    assert {sub for sub in getattr(command, "commands", {}) if f"`{sub}" not in section(name)} == set()


def test_the_options_before_a_command_are_documented():
    assert {option for option in options_of(get_command(cli.app)) if f"`{option}" not in COMMON} == set()


@pytest.mark.parametrize("choices", [config.DEVICES, config.DTYPES, config.WEIGHTS, config.KERNELS])
def test_every_choice_of_the_common_options_is_documented(choices):
    assert [choice for choice in choices if f"`{choice}`" not in COMMON] == []


def test_the_documented_workload_is_one(tmp_path):
    [example] = re.findall(r"^```json\n(.*?)^```", section("bench"), re.MULTILINE | re.DOTALL)
    (tmp_path / "workload.json").write_text(example)
    assert len(load_workload(tmp_path / "workload.json").steps) == 2


def test_the_readmes_make_commands_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))
    assert {"web", "test"} <= named <= targets


def anchors(page):
    """What a link behind # can name: a page's headings, as they are made into anchors."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if "://" not in link]
    for path, _, anchor in (link.partition("#") for link in links):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


OURS = [
    path.relative_to(ROOT).as_posix()
    for folder in ("kernels", "engine", "app", "tui", "tests")
    for kind in ("py", "js", "css", "tcss")
    for path in (ROOT / folder).rglob(f"*.{kind}")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_source_files_that_a_page_names_are_there(page):
    named = set(re.findall(r"`([\w/]+\.(?:py|js|t?css))`", page.read_text()))
    assert {path for path in named if not any(f"/{known}".endswith(f"/{path}") for known in OURS)} == set()


def test_every_page_is_linked_from_the_readme():
    assert [page.name for page in PAGES[1:] if f"](docs/{page.name}" not in README] == []


def undocumented(name, public):
    """A class, and what of its methods and properties is public, where it says nothing of itself."""
    members = {member: value for member, value in vars(public).items() if not member.startswith("_")}
    functions = {member: getattr(value, "fget", getattr(value, "__func__", value)) for member, value in members.items()}
    silent = [
        f"{name}.{member}" for member, function in functions.items() if callable(function) and not function.__doc__
    ]
    is_silent = not public.__doc__ or public.__doc__.startswith(f"{name}(")  # what a dataclass makes of its fields
    return [name] * is_silent + silent


@pytest.mark.parametrize("name", paged_chat.engine.__all__)
def test_every_public_name_of_the_engine_says_what_it_is(name):
    assert undocumented(name, getattr(paged_chat.engine, name)) == []


def test_a_name_that_says_nothing_is_found():
    @dataclass
    class Silent:
        """Says what it is."""

        number: int

        @property
        def twice(self):
            return 2 * self.number

    assert undocumented("Silent", Silent) == ["Silent.twice"]
    Silent.__doc__ = "Silent(number: int)"
    assert undocumented("Silent", Silent) == ["Silent", "Silent.twice"]


def test_the_changelog_has_the_packages_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
