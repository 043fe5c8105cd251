"""Keys as a person binds them."""

import pytest
from rich.console import Console
from textual.widgets import Static

from paged_chat.tui.keymap import KeymapInvalid, binding_ids, clashes, read_keymap, sample_keymap
from terminal import Terminal, make_app, open_terminal


def test_no_file_changes_nothing(tmp_path):
    assert read_keymap(tmp_path / "keymap.toml") == {}


def test_the_sample_names_everything_and_changes_nothing(tmp_path):
    path = tmp_path / "keymap.toml"
    path.write_text(sample_keymap())
    assert read_keymap(path) == {}
    for line in sample_keymap().splitlines():
        if line.startswith("# ") and " = " in line:
            path.write_text(f"[keys]\n{line[2:]}\n" if '= ""' not in line else "")
            read_keymap(path)
    assert all(f'{name}" =' in sample_keymap() or f"{name} =" in sample_keymap() for name in binding_ids())


def test_keys_are_read_quoted_or_not(tmp_path):
    path = tmp_path / "keymap.toml"
    path.write_text('[keys]\nnew_chat = "f9, ctrl+n"\nmessage.retry = "a"\n"message.edit" = "b"\n')
    assert read_keymap(path) == {"new_chat": "f9,ctrl+n", "message.retry": "a", "message.edit": "b"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[keys", "can't be used"),
        ("keys = 3", "must be a table"),
        ('[keys]\nnew_cat = "f9"', "nothing is called 'new_cat'"),
        ("[keys]\nnew_chat = 9", "new_chat must be a key"),
        ('[keys]\nretry = "f9,ctrl+blurb"', "retry: no key is called 'ctrl\\+blurb'"),
    ],
)
def test_a_faulty_file_is_refused_with_the_place(tmp_path, content, reason):
    path = tmp_path / "keymap.toml"
    path.write_text(content)
    with pytest.raises(KeymapInvalid, match=reason) as refused:
        read_keymap(path)
    assert str(path) in str(refused.value)


def test_no_key_does_two_things():
    assert list(clashes({})) == []


async def test_a_key_that_was_bound_anew_works_and_is_shown(desk, tmp_path):
    path = tmp_path / "keys.toml"
    path.write_text('[keys]\ncontinue_reply = "f9"\nsend = "f10"\n')
    app = make_app(desk, path)
    async with app.run_test(size=(120, 40)) as pilot:
        terminal = Terminal(app, pilot, desk.fake)
        await terminal.until(lambda: terminal.screen.service is not None)
        await terminal.write("go")
        desk.fake.enqueue("on")
        await terminal.keys("f10")
        await terminal.until(lambda: terminal.texts == ["go", "on"] and terminal.is_idle)
        await terminal.keys("f9")
        assert any("can't be continued" in notice or "end" in notice for notice in terminal.notices)
        await terminal.keys("f1")
        console = Console(width=100)
        with console.capture() as shown:
            console.print(app.screen.query("Static").first(Static).content)
        assert any("f9" in line and "go on where it was cut" in line for line in shown.get().splitlines())


async def test_a_faulty_keymap_is_a_notice(desk, tmp_path):
    desk.path.with_name("keymap.toml").write_text("[keys]\nnew_cat = 'f9'\n")
    async with open_terminal(desk) as terminal:
        await terminal.until(lambda: terminal.notices)
        assert "nothing is called 'new_cat'" in terminal.notices[0]


async def test_two_things_on_one_key_are_a_notice(desk):
    desk.path.with_name("keymap.toml").write_text("[keys]\nnew_chat = 'ctrl+f'\n")
    async with open_terminal(desk) as terminal:
        await terminal.until(lambda: terminal.notices)
        assert terminal.notices[0].endswith("keymap.toml: ctrl+f is new_chat and search; only one of them happens")


async def test_the_sample_is_written_where_there_is_none(desk):
    async with open_terminal(desk):
        assert desk.path.with_name("keymap.toml").read_text() == sample_keymap()
