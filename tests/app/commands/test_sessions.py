"""`paged-chat sessions`: chats on disk as a person and a script see them."""

import io
import json
import os
import subprocess
import sys
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chat_samples
from paged_chat.app.chats import MessageTree
from paged_chat.app.commands.sessions import WRITERS
from paged_chat.app.porting import read_file
from paged_chat.app.porting.new_file import new_file
from paged_chat.app.store.store import Store, default_path

TREE = MessageTree(
    [
        chat_samples.message(1, None, "three days, no museums"),
        chat_samples.reply(2, 1, "Day one: Alfama."),
        chat_samples.reply(4, 1, "Belém first", status="stopped", cost=None),
        chat_samples.message(5, 4, "and the second?"),
    ]
)
CHAT = chat_samples.chat(TREE, tags=("travel",), is_pinned=True, system_prompt="Be brief.", active_leaf_id=5)
MUSEUM_TREE = MessageTree([chat_samples.message(1, None, "Which museum is quiet on a Monday?")])
MUSEUM = chat_samples.chat(MUSEUM_TREE, title="Museum", has_own_title=True)


@pytest.fixture
def stored(home):
    """Two chats in the home: Lisbon, then Museum, as the list shows them."""
    with closing(Store(default_path())) as store:
        return store.import_chats([chat_samples.imported(CHAT, TREE), chat_samples.imported(MUSEUM, MUSEUM_TREE)])


def all_chats():
    """What is in the home now, without ids, by title."""
    with closing(Store(default_path())) as store:
        chats = store.chats(archived=None)
        return sorted((chat_samples.imported(chat, store.tree(chat.id)) for chat in chats), key=lambda chat: chat.title)


def local(time):
    return f"{time.astimezone():%Y-%m-%d %H:%M}"


def test_list_shows_pinned_ones_first_with_their_marks(run_cli, stored):
    lisbon, museum = stored
    assert run_cli("sessions", "list").out.splitlines() == [
        f"{lisbon.id[:8]}  {local(CHAT.updated_at)}  Trip to Lisbon  pinned  #travel",
        f"{museum.id[:8]}  {local(MUSEUM.updated_at)}  Museum",
    ]


def test_list_by_tag_by_number_archived_and_by_user(run_cli, stored):
    def titles(*options):
        return [json.loads(line)["title"] for line in run_cli("sessions", "list", "--json", *options).out.splitlines()]

    assert titles("--tag", "travel") == ["Trip to Lisbon"]
    assert titles("--limit", "1") == ["Trip to Lisbon"]
    assert titles("--archived") == []
    assert titles("--user", "somebody") == []
    with closing(Store(default_path())) as store:
        store.update_chat(stored[1].id, is_archived=True)
    assert titles("--archived") == ["Museum"]
    assert titles() == ["Trip to Lisbon"]


def test_an_empty_home_has_an_empty_list(run_cli):
    ended = run_cli("sessions", "list")
    assert (ended.code, ended.out, ended.err) == (0, "", "no chats yet\n")
    assert run_cli("sessions", "list", "--tag", "travel").err == "no such chats\n"
    assert run_cli("sessions", "search", "alfama").err == "nothing found\n"


@pytest.mark.parametrize("command", [["list"], ["search", "alfama"]])
@pytest.mark.parametrize("limit", ["0", "-1", "x", "2147483648"])
def test_a_limit_that_makes_no_sense_is_refused(run_cli, command, limit):
    ended = run_cli("sessions", *command, "--limit", limit)
    assert ended.code == 2
    assert f"'--limit': must be a whole number from 1 to 2147483647, not '{limit}'" in ended.err


def test_a_search_for_nothing_is_refused(run_cli):
    ended = run_cli("sessions", "search", "", " ")
    assert ended.code == 2
    assert "WORD must not be empty" in ended.err


def test_show_prints_the_shown_path_and_what_replies_took(run_cli, stored):
    with closing(Store(default_path())) as store:
        lisbon = stored[0]
        first_reply = next(message for message in store.tree(lisbon.id) if message.text == "Day one: Alfama.")
        assert run_cli("sessions", "show", lisbon.id[:6]).out == (
            "Trip to Lisbon\n"
            f"{lisbon.id[:8]} · {local(CHAT.updated_at)} · 4 messages, 3 of them shown · pinned · #travel\n"
            "\nsystem\nBe brief.\n"
            "\nyou\nthree days, no museums\n"
            "\nai  2/2  stopped\nBelém first\n"
            "\nyou\nand the second?\n"
        )
        store.set_active_leaf(lisbon.id, first_reply.id)
    assert run_cli("sessions", "show", lisbon.id).out.endswith(
        "\nai  1/2\nDay one: Alfama.\n212 reused · 31 computed · TTFT 48 ms · 118 tok/s\n"
    )


def test_show_as_json_is_the_whole_tree(run_cli, stored):
    shown = json.loads(run_cli("sessions", "show", stored[0].id, "--json").out)
    assert (shown["id"], shown["title"], shown["tags"]) == (stored[0].id, "Trip to Lisbon", ["travel"])
    assert [message["text"] for message in shown["messages"]] == [message.text for message in TREE]
    assert shown["messages"][1]["token_ids"] == [26, 77, 2]
    assert shown["messages"][1]["cost"]["num_cached_tokens"] == 212


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("zzz", "Error: no chat's id begins with 'zzz'; `paged-chat sessions list` shows them\n"),
        ("", "Error: no chat's id begins with ''; `paged-chat sessions list` shows them\n"),
    ],
)
def test_a_chat_that_is_not_there_is_an_error(run_cli, stored, name, fault):
    for command in ("show", "export", "delete"):
        ended = run_cli("sessions", command, name)
        assert (ended.code, ended.out, ended.err) == (1, "", fault)


def test_an_id_that_several_begin_with_is_an_error(run_cli, home):
    with closing(Store(default_path())) as store:
        ids = [store.create_chat().id for _ in range(17)]  # of 17 ids two begin with the same digit
    digit = next(digit for digit in "0123456789abcdef" if sum(chat_id[0] == digit for chat_id in ids) > 1)
    num_chats = sum(chat_id[0] == digit for chat_id in ids)
    assert run_cli("sessions", "show", digit).err == (
        f"Error: the ids of {num_chats} chats begin with '{digit}'; give more of it\n"
    )


def test_somebody_elses_chat_is_not_there(run_cli, stored):
    assert run_cli("sessions", "show", stored[0].id, "--user", "somebody").code == 1


def test_search_finds_words_in_messages_and_titles(run_cli, stored):
    lisbon, museum = stored
    assert run_cli("sessions", "search", "belém").out == f"{lisbon.id[:8]}  Trip to Lisbon: Belém first\n"
    assert run_cli("sessions", "search", "Museum").out.splitlines()[0] == f"{museum.id[:8]}  Museum"
    assert run_cli("sessions", "search", "zoo").out == ""


@pytest.mark.parametrize("query", ['"', "%", "*", "a AND", "NEAR(", "'; DROP TABLE chats; --", "-x"])
def test_search_takes_any_query(run_cli, stored, query):
    ended = run_cli("sessions", "search", "--", query)
    assert ended.code == 0
    assert ended.err in ("", "nothing found\n")


def test_search_as_json_says_where_the_words_are(run_cli, stored):
    [hit] = map(json.loads, run_cli("sessions", "search", "belém", "--json").out.splitlines())
    assert (hit["chat"], hit["title"], hit["snippet"]) == (stored[0].id, "Trip to Lisbon", "Belém first")
    assert hit["highlights"] == [[0, 5]]
    assert isinstance(hit["message"], int)


def test_stats_count_what_there_is(run_cli, stored):
    figures = json.loads(run_cli("sessions", "stats", "--json").out)
    assert figures.pop("num_bytes") > 10_000
    assert figures == {
        "num_chats": 2,
        "num_messages": 5,
        "num_cached_tokens": 212,
        "num_computed_tokens": 31,
        "num_generated_tokens": 3,
    }
    assert run_cli("sessions", "stats").out.splitlines()[:5] == [
        "chats             2",
        "messages          5",
        "prompt tokens     243",
        "  reused          212 (87%)",
        "generated tokens  3",
    ]


# Taking away, and bringing back


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
        f"Error: {tmp_path}/absent/chats.json can't be written: No such file or directory\n",
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


# Deleting


def test_delete_asks_first(run_cli, stored, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    ended = run_cli("sessions", "delete", stored[0].id)
    assert ended.code == 1
    assert "Trip to Lisbon" in ended.out
    assert "Delete 1 chat for good? [y/N]" in ended.out
    assert len(all_chats()) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run_cli("sessions", "delete", stored[0].id[:8]).out.endswith("1 chat deleted\n")
    assert [chat.title for chat in all_chats()] == ["Museum"]


def test_delete_without_asking(run_cli, stored):
    lisbon, museum = stored
    ended = run_cli("sessions", "delete", "--yes", lisbon.id, museum.id, lisbon.id[:8])
    assert (ended.code, ended.out) == (0, "2 chats deleted\n")
    assert all_chats() == []


def test_one_unknown_chat_keeps_all_of_them(run_cli, stored):
    assert run_cli("sessions", "delete", "--yes", stored[0].id, "zzz").code == 1
    assert len(all_chats()) == 2


# With others


def test_what_somebody_wrote_moves_no_cursor(run_cli, tmp_path):
    file = tmp_path / "a.json"
    content = "\x1b]0;owned\x07\x1b[2J\x9b31m\rhi\ttab\nline"
    file.write_text(json.dumps({"title": content, "messages": [{"role": "user", "content": content}]}))
    run_cli("sessions", "import", str(file))
    for command in (("list",), ("search", "owned"), ("show", all_chats_ids()[0])):
        out = run_cli("sessions", *command).out
        assert "owned" in out
        assert not set(out) & {"\x1b", "\x07", "\x9b", "\r"}
    assert "hi\ttab\nline" in out


def test_streams_that_are_closed_or_full_are_errors_in_words(stored, home):
    def shell(command):
        run = f"'{sys.executable}' -P -c 'from paged_chat.app.cli import main; main()' sessions"
        ended = subprocess.run(["sh", "-c", f"{run} {command}"], capture_output=True, text=True, check=False)
        assert "Traceback" not in ended.stderr
        return ended.returncode, ended.stderr.strip()

    assert shell("import - <&-") == (1, "Error: standard input is closed: give a file instead of -")
    assert shell("export --all >&-") == (1, "Error: standard output is closed: give a file with --output")
    assert shell("export --all >/dev/full") == (1, "Error: the output can't be written: No space left on device")


def test_a_terminal_without_the_letters_shows_question_marks(home):
    with closing(Store(default_path())) as store:
        chat = store.create_chat(title="日本 é")
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-P", "-c", "from paged_chat.app.cli import main; main()", "sessions", "list"]
    listed = subprocess.run(command, env=latin, capture_output=True, check=True).stdout.decode("latin-1")
    assert listed.endswith("  ?? é\n")
    as_json = subprocess.run([*command, "--json"], env=latin, capture_output=True, check=True).stdout
    assert json.loads(as_json)["title"] == chat.title


@pytest.mark.parametrize("time", ["0001-01-01T12:00:00Z", "9999-12-31T12:00:00Z"])
def test_a_time_that_is_no_date_in_some_zone_is_refused(run_cli, tmp_path, stored, time):
    file = tmp_path / "chats.json"
    run_cli("sessions", "export", stored[1].id, "-o", str(file))
    chats = json.loads(file.read_text())
    chats["chats"][0]["updated_at"] = time
    file.write_text(json.dumps(chats))
    ended = run_cli("sessions", "import", str(file))
    assert ended.err.startswith("Error: chats.json: chats[0].updated_at must be a time such as")
    assert len(all_chats()) == 2


def test_figures_that_could_not_be_summed_are_refused(run_cli, tmp_path, stored):
    file = tmp_path / "chats.json"
    run_cli("sessions", "export", stored[0].id, "-o", str(file))
    chats = json.loads(file.read_text())
    chats["chats"][0]["messages"][1]["cost"]["num_cached_tokens"] = 2**62
    file.write_text(json.dumps(chats))
    ended = run_cli("sessions", "import", str(file))
    assert f"cost.num_cached_tokens must be a whole number from 0 to {2**40}, not {2**62}" in ended.err
    assert run_cli("sessions", "stats").code == 0


def all_chats_ids():
    with closing(Store(default_path())) as store:
        return [chat.id for chat in store.chats(archived=None)]


STREAMING = """
import itertools, sys
from paged_chat.app.chats import NewReply
from paged_chat.app.store.store import Store, default_path
from paged_chat.engine.request import SamplingParams
with Store(default_path()) as store:
    chat = store.create_chat(title="streaming")
    turn = store.add_turn(chat.id, None, "hello", [NewReply(model=None, sampling=SamplingParams())])
    print(chat.id, flush=True)
    for length in itertools.count(1):
        store.save_draft(turn.replies[0].id, "x" * length, [1] * length)
"""


def test_all_of_it_works_while_another_process_streams(run_cli, stored, tmp_path):
    with subprocess.Popen([sys.executable, "-c", STREAMING], stdout=subprocess.PIPE, text=True) as streaming:
        try:
            assert streaming.stdout is not None
            chat_id = streaming.stdout.readline().strip()
            assert "streaming" in run_cli("sessions", "list").out
            assert "ai  being written\nx" in run_cli("sessions", "show", chat_id).out
            file = tmp_path / "chats.json"
            assert run_cli("sessions", "export", "--all", "-o", str(file)).code == 0
            assert run_cli("sessions", "import", str(file)).out == "3 chats imported\n"
            assert run_cli("sessions", "delete", "--yes", stored[0].id).out == "1 chat deleted\n"
            assert streaming.poll() is None, "it streams on"
        finally:
            streaming.kill()
    copies = [chat for chat in all_chats() if chat.title == "streaming"]
    assert [chat.messages[0].text for chat in copies] == ["hello", "hello"]
    assert "stopped" in [chat.messages[1].status for chat in copies], "nobody writes the copy"
