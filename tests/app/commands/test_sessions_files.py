"""`paged-chat sessions export` and `import`: what is taken away comes back, and nothing is written over."""

import io
import json
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chat_samples
from paged_chat.app.chats import MessageTree
from paged_chat.app.commands.sessions import WRITERS
from paged_chat.app.porting import read_file
from paged_chat.app.porting.new_file import new_file
from paged_chat.app.service.default_sampling import default_sampling_of
from paged_chat.app.store.store import Store, default_path
from paged_chat.engine.config import DEFAULT_MODEL
from stored_chats import all_chats


@pytest.mark.parametrize("name", ["chats.json", "chats.md"])
def test_what_was_exported_comes_back_equal(run_cli, stored, home, tmp_path, monkeypatch, name):
    file = tmp_path / name
    assert run_cli("sessions", "export", "--all", "-o", str(file)).out == f"2 chats written to {file}\n"
    before = all_chats()
    monkeypatch.setenv("PAGED_CHAT_HOME", str(tmp_path / "other"))
    assert run_cli("sessions", "import", str(file)).out == "2 chats imported\n"
    assert all_chats() == before


@settings(deadline=None, max_examples=25)
@given(st.lists(chat_samples.chats(), min_size=1, max_size=3), st.sampled_from(("json", "markdown")))
def test_any_chats_come_back_equal(tmp_path_factory, chats, format):
    folder = tmp_path_factory.mktemp("round-trip")
    path = folder / "chats"
    with closing(Store(folder / "first.db")) as store:
        store.import_chats(chat_samples.imported(*chat) for chat in chats)
        exported = [(chat, store.tree(chat.id)) for chat in store.chats(archived=None)]
    with new_file(path) as out:
        WRITERS[format](exported, out)
    with closing(Store(folder / "second.db")) as store:
        added = store.import_chats(read_file(path).chats)
        assert [chat_samples.imported(chat, store.tree(chat.id)) for chat in added] == [
            chat_samples.imported(*chat) for chat in exported
        ]


def test_an_export_goes_to_standard_output_whatever_its_line_ends(run_cli, home):
    tree = MessageTree([chat_samples.message(1, None, "a\r\nb\rc")])
    with closing(Store(default_path())) as store:
        store.import_chats([chat_samples.imported(chat_samples.chat(tree), tree)])
    assert json.loads(run_cli("sessions", "export", "--all").out)["chats"][0]["messages"][0]["text"] == "a\r\nb\rc"
    assert "\na\r\nb\rc\n" in run_cli("sessions", "export", "--all", "-o", "-", "--format", "markdown").out


def test_a_folder_gets_a_file_for_each_chat(run_cli, stored, tmp_path):
    folder = tmp_path / "chats"
    folder.mkdir()
    lisbon, museum = stored
    run_cli("sessions", "export", "--all", "-o", str(folder), "--format", "markdown")
    names = [f"Museum-{museum.id[:8]}.md", f"Trip-to-Lisbon-{lisbon.id[:8]}.md"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert (folder / names[0]).read_text().startswith("<!-- paged-chat:chat 1 -->\n# Museum\n")
    (folder / names[1]).unlink()
    again = run_cli("sessions", "export", "--all", "-o", str(folder), "--format", "markdown")
    assert (again.code, again.err) == (1, f"Error: {folder / names[0]} is there already; --force writes over it\n")
    assert not (folder / names[1]).exists()


def test_a_file_is_named_by_the_letters_of_the_title_as_far_as_names_go(run_cli, home, tmp_path):
    with closing(Store(default_path())) as store:
        ids = [store.create_chat(title=title).id[:8] for title in ("../etc/passwd", "旅" * 100, "💥")]
    run_cli("sessions", "export", "--all", "-o", str(tmp_path))
    names = {f"etc-passwd-{ids[0]}.json", f"{'旅' * 53}-{ids[1]}.json", f"{ids[2]}.json"}
    assert {path.name for path in tmp_path.glob("*.json")} == names


def test_shown_leaves_the_other_branches_out(run_cli, stored):
    chat = json.loads(run_cli("sessions", "export", stored[0].id, "--shown").out)["chats"][0]
    assert [message["text"] for message in chat["messages"]] == [
        "three days, no museums",
        "Belém first",
        "and the second?",
    ]


def test_an_export_writes_over_nothing_unless_told_to(run_cli, stored, tmp_path):
    file = tmp_path / "chats.json"
    file.write_text("mine")
    ended = run_cli("sessions", "export", "--all", "-o", str(file))
    assert (ended.code, ended.err) == (1, f"Error: {file} is there already; --force writes over it\n")
    assert file.read_text() == "mine"
    assert run_cli("sessions", "export", "--all", "-o", str(file), "--force").code == 0
    assert json.loads(file.read_text())["format"] == "paged-chat"
    assert file.stat().st_mode & 0o077 == 0, "chats are nobody else's to read"
    assert [path.name for path in tmp_path.glob("*chats.json*")] == ["chats.json"]


def test_an_export_to_where_nothing_can_be_written(run_cli, stored, tmp_path):
    ended = run_cli("sessions", "export", "--all", "-o", str(tmp_path / "absent" / "chats.json"))
    assert (ended.code, ended.err) == (
        1,
        f"Error: {tmp_path}/absent/chats.json can't be written: there is no folder {tmp_path}/absent\n",
    )


def test_an_export_to_a_name_that_no_file_can_have(run_cli, stored, tmp_path):
    ended = run_cli("sessions", "export", "--all", "-o", str(tmp_path / ("a" * 300)))
    assert ended.code == 1
    assert ended.err.endswith("can't be written: File name too long\n")


@pytest.mark.parametrize("arguments", [(), ("--all", "c0ffee")])
def test_an_export_wants_chats_or_all(run_cli, arguments):
    ended = run_cli("sessions", "export", *arguments)
    assert ended.code == 2
    assert "name the chats, or give --all" in ended.err


def test_import_reads_several_files_of_several_formats(run_cli, tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps([{"role": "user", "content": "hello"}]))
    (tmp_path / "b.jsonl").write_text(json.dumps({"messages": [{"role": "tool", "content": "x"}], "title": "B"}))
    standard_input = json.dumps([[{"role": "user", "content": [{"type": "image"}]}]]).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(standard_input))))
    ended = run_cli("sessions", "import", str(tmp_path / "a.json"), str(tmp_path / "b.jsonl"), "-")
    assert ended.out == "3 chats imported\nnot taken over: 1 images, 1 tool messages\n"
    assert [chat.title for chat in all_chats()] == ["B", "[image]", "hello"]
    assert {chat.sampling for chat in all_chats()} == {default_sampling_of(DEFAULT_MODEL).sampling}


def test_import_as_json_gives_the_ids(run_cli, tmp_path):
    file = tmp_path / "a.json"
    file.write_text(json.dumps([{"role": "user", "content": "hello"}, {"role": "tool", "content": "x"}]))
    result = json.loads(run_cli("sessions", "import", str(file), "--json").out)
    assert result["left_out"] == {"tool messages": 1}
    [chat_id] = result["chats"]
    assert run_cli("sessions", "show", chat_id).out.endswith("\nyou\nhello\n")


def test_one_damaged_file_keeps_all_of_them_out(run_cli, stored, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([{"role": "user", "content": "hello"}]))
    run_cli("sessions", "export", "--all", "-o", str(tmp_path / "b.json"))
    whole = (tmp_path / "b.json").read_text()
    (tmp_path / "b.json").write_text(whole.replace('"role": "assistant"', '"role": "robot"', 1))
    before = all_chats()
    ended = run_cli("sessions", "import", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == ('Error: b.json: chats[0].messages[1].role must be "user" or "assistant", not "robot"\n')
    assert all_chats() == before
