"""`paged-chat sessions`: chats on disk as a person and a script see them."""

import io
import json
import os
import subprocess
import sys
from contextlib import closing

import pytest

from paged_chat.app.store.store import Store, default_path
from stored_chats import CHAT, MUSEUM, TREE, all_chats


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
    assert run_cli("sessions", "list", "--tag", "").err == "no such chats\n"
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
