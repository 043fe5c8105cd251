"""The prompt: lines, history, pastes, files, commands, and what sending would cost."""

import re

from textual import events

from paged_chat.tui.widgets.completions import Completions
from paged_chat.tui.widgets.meter import Meter
from terminal import open_terminal


def meter_of(terminal):
    return " ".join(str(terminal.screen.query_one(Meter).render()).split())


def offered(terminal):
    completions = terminal.screen.query_one(Completions)
    return [option.id for option in completions.options] if completions.is_open else []


async def test_lines_are_broken_without_sending(desk):
    async with open_terminal(desk) as terminal:
        for key in ("shift+enter", "ctrl+j"):
            await terminal.keys("a", key)
        assert terminal.prompt.text == "a\na\n"
        assert terminal.texts == []


async def test_history_is_walked_at_the_edges_and_keeps_what_was_begun(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("one")
        await terminal.send("two")
        await terminal.write("begun")
        await terminal.keys("up")
        assert terminal.prompt.text == "two"
        await terminal.keys("up", "up", "up")
        assert terminal.prompt.text == "one"
        await terminal.keys("down", "down", "down")
        assert terminal.prompt.text == "begun"


async def test_a_long_paste_stands_as_one_word_is_counted_and_sent_whole(desk):
    pasted = "\n".join(f"line {i}" for i in range(40))
    async with open_terminal(desk) as terminal:
        await terminal.write("sum up: ")
        terminal.app.post_message(events.Paste(pasted.replace("\n", "\r")))  # as terminals send it
        await terminal.until(lambda: terminal.prompt.text == "sum up: [pasted 1: 40 lines]")
        await terminal.until(lambda: "pasted 1, 40 lines: 309 tokens" in meter_of(terminal))
        await terminal.send("")
        assert terminal.path[0].text == f"sum up: {pasted}"


async def test_a_file_that_is_not_there_is_told_before_its_name_is_sent_as_text(desk):
    async with open_terminal(desk) as terminal:
        await terminal.write("what is in @gone/notse.txt")
        await terminal.until(lambda: "tokens" in meter_of(terminal))
        assert "no such file" not in meter_of(terminal)
        await terminal.write(" ?")
        await terminal.until(lambda: "gone/notse.txt: no such file" in meter_of(terminal))


async def test_what_is_typed_while_a_message_is_sent_is_the_next_one(desk):
    desk.fake.enqueue("one")
    async with open_terminal(desk) as terminal:
        await terminal.pilot.press(*"/n", "space", *"1", "enter", *"first", "enter", *"second")
        await terminal.until(lambda: terminal.texts == ["first", "one"])
        assert terminal.prompt.text == "second"


async def test_a_short_paste_is_text(desk):
    async with open_terminal(desk) as terminal:
        terminal.app.post_message(events.Paste("short\ntext"))
        await terminal.until(lambda: terminal.prompt.text == "short\ntext")


async def test_a_file_is_completed_counted_and_attached(desk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "poem.txt").write_text("roses")
    async with open_terminal(desk) as terminal:
        await terminal.write("praise @po")
        await terminal.until(lambda: offered(terminal) == ["@poem.txt"])
        await terminal.keys("tab")
        assert terminal.prompt.text == "praise @poem.txt "
        await terminal.until(lambda: "poem.txt: 5 tokens" in meter_of(terminal))
        await terminal.send("")
        assert terminal.path[0].text == "File poem.txt:\n```\nroses\n```\n\npraise @poem.txt "


async def test_a_name_that_goes_another_way_is_no_longer_completed(desk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "poem.txt").write_text("roses")
    async with open_terminal(desk) as terminal:
        await terminal.write("@po")
        await terminal.until(lambda: offered(terminal) == ["@poem.txt"])
        terminal.prompt.insert("tato")
        await terminal.send("")
        assert terminal.path[0].text == "@potato"


async def test_nobody_home_and_folders_that_are_gone_are_no_fault(desk, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    async with open_terminal(desk) as terminal:
        await terminal.send("hello", "hi")
        await terminal.write("/save ~nobody-has-this-name/reply.md")
        await terminal.keys("enter")
        await terminal.until(
            lambda: any("can't be written: there is no folder" in notice for notice in terminal.notices)
        )
        gone.rmdir()
        await terminal.write("/save reply.md")
        await terminal.keys("enter")
        await terminal.until(lambda: any("this folder is gone" in notice for notice in terminal.notices))
        await terminal.send("@~nobody-has-this-name/x @reply.md")
        assert terminal.path[2].text == "@~nobody-has-this-name/x @reply.md"


async def test_commands_are_completed_and_run(desk):
    async with open_terminal(desk) as terminal:
        await terminal.write("/see")
        assert offered(terminal) == ["/seed"]
        await terminal.keys("enter")
        assert terminal.prompt.text == "/seed "
        await terminal.write("7")
        await terminal.keys("enter")
        assert terminal.screen.sampling.seed == 7
        assert terminal.prompt.text == ""
        await terminal.write("/t")
        await terminal.keys("down", "escape")
        assert offered(terminal) == []
        assert terminal.prompt.text == "/t"


async def test_a_wrong_command_is_a_notice_and_stays_to_be_mended(desk):
    async with open_terminal(desk) as terminal:
        await terminal.write("/halp")
        await terminal.keys("enter")
        assert "there is no command /halp" in terminal.notices[-1]
        assert terminal.prompt.text == "/halp"
        await terminal.write("")
        terminal.prompt.load_text("/temp 1000")
        await terminal.keys("enter")
        assert terminal.notices[-1] == "temperature must be at least 0 and at most 100, not 1000"
        assert terminal.prompt.text == "/temp 1000"


async def test_a_command_says_what_it_takes_and_costs_nothing(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("question", "an answer that is long enough for a block")
        await terminal.write("/temp 0.5")
        await terminal.until(lambda: meter_of(terminal).startswith("/temp number: Temperature"))
        assert "computes" not in meter_of(terminal)
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.notices[-1] == "This chat: temperature 0.5")
        await terminal.write("/temp")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.notices[-1].startswith("temperature 0.5. /temp number: "))
        assert terminal.prompt.text == ""


async def test_what_comes_at_once_happens_in_its_order(desk):
    """As over a slow line: Textual alone would run the backspace after all letters."""
    async with open_terminal(desk) as terminal:
        for key in ["h", "e", "l", "l", "p", "backspace", "o", "home", "X"]:
            terminal.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await terminal.until(lambda: terminal.prompt.text.endswith("o") and "X" in terminal.prompt.text)
        assert terminal.prompt.text == "Xhello"
        for key in ["ctrl+u", "delete", "n", "e", "w"]:
            terminal.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await terminal.until(lambda: "w" in terminal.prompt.text)
        assert terminal.prompt.text == "newello"


async def test_the_cost_of_sending_is_known_before(desk):
    async with open_terminal(desk) as terminal:
        await terminal.write("new")
        await terminal.until(lambda: meter_of(terminal) == "reuses nothing, computes 20 tokens 20 / 4,096")
        assert desk.service.chats() == []
        terminal.prompt.load_text("")
        await terminal.until(lambda: meter_of(terminal) == "")
        await terminal.send("question", "an answer that is long enough for a block")
        await terminal.write("more")
        await terminal.until(lambda: re.match("reuses 4 blocks and [0-9]+ tokens, computes", meter_of(terminal)))
        assert meter_of(terminal).endswith("/ 4,096")


async def test_where_no_editor_can_be_opened_it_is_a_notice_and_the_prompt_stays(desk):
    """What an editor writes is tried in a real terminal."""
    async with open_terminal(desk) as terminal:
        await terminal.write("begun")
        await terminal.keys("ctrl+g")
        assert terminal.notices[-1] == "this terminal can't be lent to another program: write in the prompt"
        assert terminal.prompt.text == "begun"
