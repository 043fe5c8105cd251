"""A conversation in the terminal: written, streamed, stopped, gone on with, written again."""

import re

import pytest

from paged_chat.tui.widgets.reply_foot import ReplyFoot
from paged_chat.tui.widgets.reply_group import ReplyGroup
from paged_chat.tui.widgets.reply_text import ReplyText
from terminal import open_terminal

CODE = "Two:\n\n```python\nprint(1)\n```\n\nand\n\n```sh\nls\n```\n"


def foot_of(view):
    return str(view.query_one(ReplyFoot).render())


async def test_a_message_is_sent_streamed_and_stored(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("hello", "# Hi\n\nthere")
        assert terminal.texts == ["hello", "# Hi\n\nthere"]
        assert terminal.prompt.text == ""
        [chat] = desk.service.chats()
        assert chat.title == "hello"
        assert desk.texts(chat) == ["hello", "# Hi\n\nthere"]


async def test_a_reply_is_shown_while_it_grows_and_what_it_took_afterwards(desk):
    desk.fake.hold()
    desk.fake.enqueue("abcdefgh")
    async with open_terminal(desk) as terminal:
        await terminal.write("go")
        await terminal.keys("enter")
        await terminal.until(lambda: len(terminal.texts) == 2)
        view = terminal.conversation.views[1]
        await terminal.until(lambda: re.fullmatch(r"h+\nreading: .*", foot_of(view)))
        desk.fake.let(4)
        await terminal.until(lambda: view.answer == "abcd")
        assert foot_of(view).startswith("hh\nfake-1b · 0 reused · ")
        assert "writing, 4 tokens" in foot_of(view)
        desk.fake.go()
        await terminal.until(lambda: terminal.is_idle)
        await terminal.until(lambda: "computed" in foot_of(view))
        assert view is terminal.conversation.views[1]
        assert foot_of(view).startswith("hh\nfake-1b · 0 reused · ")


async def test_esc_stops_a_reply_and_it_can_go_on(desk):
    desk.fake.hold()
    desk.fake.enqueue("abcdefgh")
    async with open_terminal(desk) as terminal:
        await terminal.write("go")
        await terminal.keys("enter")
        desk.fake.let(3)
        await terminal.until(lambda: terminal.texts[1:] == ["abc"])
        await terminal.keys("escape")
        await terminal.until(lambda: terminal.is_idle)
        assert terminal.path[1].status == "stopped"
        assert "stopped, ^l goes on" in foot_of(terminal.conversation.views[1])
        desk.fake.enqueue(" and on")
        desk.fake.go()
        await terminal.keys("ctrl+l")
        await terminal.until(lambda: terminal.texts[1:] == ["abc and on"])


async def test_a_reply_goes_on_in_its_own_chat_while_another_is_shown(desk):
    desk.fake.hold()
    desk.fake.enqueue("abcdef")
    async with open_terminal(desk) as terminal:
        await terminal.write("first")
        await terminal.keys("enter")
        desk.fake.let(2)
        await terminal.until(lambda: terminal.texts[1:] == ["ab"])
        first = terminal.screen.chat
        await terminal.keys("ctrl+n")
        await terminal.until(lambda: terminal.texts == [])
        desk.fake.go()
        await terminal.until(lambda: desk.texts(first) == ["first", "abcdef"])
        await terminal.screen.open_chat(first.id)
        await terminal.until(lambda: terminal.texts == ["first", "abcdef"])


async def test_what_fails_is_a_notice_and_the_message_stays_in_the_prompt(desk):
    async with open_terminal(desk) as terminal:
        await terminal.keys("enter")
        await terminal.until(lambda: "the message is empty: write something first" in terminal.notices)
        desk.fake.enqueue_failure("ab", "out of memory")
        await terminal.send("go")
        assert terminal.path[1].status == "failed"
        assert "out of memory" in foot_of(terminal.conversation.views[1])
        assert "^r tries again" in " ".join(foot_of(terminal.conversation.views[1]).split())


# Versions


async def test_retry_and_edit_add_versions_and_the_arrows_walk_them(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("question", "one")
        desk.fake.enqueue("two")
        await terminal.keys("ctrl+r")
        await terminal.until(lambda: terminal.texts == ["question", "two"] and terminal.is_idle)
        assert "← 2/2 →" in foot_of(terminal.conversation.views[1])
        await terminal.keys("alt+left")
        await terminal.until(lambda: terminal.texts == ["question", "one"])
        await terminal.keys("ctrl+e")
        assert terminal.prompt.text == "question"
        terminal.prompt.load_text("")
        await terminal.send("other question", "three")
        assert terminal.texts == ["other question", "three"]
        await terminal.keys("alt+left")
        await terminal.until(lambda: terminal.texts == ["question", "two"])


async def test_the_selection_goes_along_with_the_versions_and_ends_with_a_new_one(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("question", "one")
        desk.fake.enqueue("two")
        await terminal.keys("alt+up", "r")
        await terminal.until(lambda: terminal.texts == ["question", "two"] and terminal.is_idle)
        await terminal.until(lambda: terminal.prompt.has_focus)
        await terminal.keys("alt+up")
        for key, reply in (("left", "one"), ("right", "two")):
            await terminal.keys(key)
            await terminal.until(lambda reply=reply: terminal.texts == ["question", reply])
            view = terminal.conversation.views[1]
            await terminal.until(lambda view=view: view.has_focus and view.has_class("selected"))
        await terminal.keys("d")
        await terminal.until(lambda: terminal.texts == ["question", "one"])
        await terminal.until(lambda: terminal.conversation.views[0].has_focus)
        await terminal.keys("u")
        await terminal.until(lambda: terminal.texts == ["question", "two"])


async def test_a_click_selects_a_message_and_typing_goes_on_in_the_prompt(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("one", "first")
        await terminal.send("two", "second")
        view = terminal.conversation.views[1]
        await terminal.pilot.click(view.query_one(ReplyText))
        await terminal.until(lambda: view.has_class("selected"))
        await terminal.keys("d", "e", "r")
        assert terminal.prompt.text == "der"
        assert terminal.screen.selected_id == view.message.id
        await terminal.keys("escape")
        assert not view.has_class("selected")


async def test_esc_leaves_an_edit_as_it_was(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("question", "one")
        await terminal.keys("ctrl+e", "escape")
        assert terminal.prompt.text == ""
        await terminal.send("next", "two")
        assert terminal.texts == ["question", "one", "next", "two"]


async def test_esc_leaves_an_edit_before_it_stops_a_reply_and_up_brings_back_what_was_changed(desk):
    desk.fake.hold()
    async with open_terminal(desk) as terminal:
        desk.fake.enqueue("one")
        await terminal.write("question")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.screen.edited_id is None and len(terminal.path) == 2)
        await terminal.keys("ctrl+e")
        await terminal.until(lambda: terminal.prompt.text == "question")
        await terminal.write(", put better")
        await terminal.keys("escape")
        assert (terminal.prompt.text, terminal.prompt.border_title) == ("", None)
        assert not terminal.is_idle
        await terminal.keys("escape")
        await terminal.until(lambda: terminal.is_idle)
        assert terminal.path[-1].status == "stopped"
        await terminal.keys("up")
        assert terminal.prompt.text == "question, put better"


async def test_what_a_reply_took_breaks_between_its_figures(desk):
    async with open_terminal(desk, size=(60, 20)) as terminal:
        await terminal.send("hello", "hi")
        lines = foot_of(terminal.conversation.views[-1]).splitlines()
        assert len(lines) > 2
        assert all(re.search(r"\d (reused|computed|tok/s|guessed)$|\d ms$", line) for line in lines[1:])


async def test_several_replies_stand_side_by_side_and_one_is_picked(desk):
    async with open_terminal(desk) as terminal:
        await terminal.write("/n 2")
        await terminal.keys("enter")
        await terminal.send("name a boat", "Alba", "Brisa")
        group = terminal.screen.query_one(ReplyGroup)
        assert [view.answer for view in group.views] == ["Alba", "Brisa"]
        assert group.views[0].region.y == group.views[1].region.y
        await terminal.keys("alt+up", "left", "right", "enter")
        await terminal.until(lambda: terminal.texts == ["name a boat", "Brisa"])
        assert not terminal.screen.query(ReplyGroup)
        await terminal.keys("ctrl+o")
        await terminal.until(lambda: terminal.texts == ["name a boat", "Alba", "Brisa"])


async def test_what_is_written_goes_on_from_the_reply_that_was_looked_at_last(desk):
    async with open_terminal(desk) as terminal:
        await terminal.write("/n 3")
        await terminal.keys("enter")
        await terminal.send("name a boat", "Alba", "Brisa", "Cala")
        group = terminal.screen.query_one(ReplyGroup)
        assert [view.border_title for view in group.views] == ["▸ Reply 1", "Reply 2", "Reply 3"]
        await terminal.keys("alt+right", "alt+right", *"why?")
        await terminal.until(lambda: [view.border_title for view in group.views] == ["Reply 1", "Reply 2", "▸ Reply 3"])
        assert (terminal.prompt.text, terminal.prompt.has_focus) == ("why?", True)
        await terminal.send("", "a", "b", "c")
        assert [message.text for message in terminal.path] == ["name a boat", "Cala", "why?", "a"]
        await terminal.keys("alt+up", "right", "escape", "ctrl+o")
        await terminal.until(lambda: terminal.texts == ["name a boat", "Cala", "why?", "b"])


@pytest.mark.parametrize("num_lines", [1, 40])
async def test_three_replies_have_room_beside_each_other_at_80_columns_whether_there_is_a_scroll_bar_or_not(
    desk, num_lines
):
    async with open_terminal(desk, size=(80, 24)) as terminal:
        await terminal.write("/n 3")
        await terminal.keys("enter")
        await terminal.send("name a boat", *["Alba\n\n" * num_lines] * 3)
        assert [view.display for view in terminal.screen.query_one(ReplyGroup).views] == [True, True, True]


async def test_replies_stand_side_by_side_from_the_first_word_on(desk):
    desk.fake.hold()
    async with open_terminal(desk) as terminal:
        await terminal.write("/n 2")
        await terminal.keys("enter")
        desk.fake.enqueue("Alba", "Brisa")
        await terminal.write("name a boat")
        await terminal.keys("enter")
        desk.fake.let(2)
        await terminal.until(lambda: terminal.texts == ["name a boat", "Al", "Br"])
        await terminal.keys("escape")
        await terminal.until(lambda: terminal.is_idle)
        desk.fake.enqueue("Cala", "Duna")
        await terminal.write("/retry 2")
        await terminal.keys("enter")
        desk.fake.let(2)
        await terminal.until(lambda: terminal.texts == ["name a boat", "Al", "Br", "Ca", "Du"])


async def test_where_it_is_narrow_replies_are_shown_one_at_a_time(desk):
    async with open_terminal(desk, size=(60, 20)) as terminal:
        await terminal.write("/n 3")
        await terminal.keys("enter")
        await terminal.send("name a boat", "Alba", "Brisa", "Cala")
        group = terminal.screen.query_one(ReplyGroup)
        assert [view.display for view in group.views] == [True, False, False]
        await terminal.keys("alt+right")
        assert [view.display for view in group.views] == [False, True, False]
        assert group.query_one(".hint").render().plain.startswith(" 1   [2]   3 \n")
        await terminal.keys("f7")
        await terminal.until(lambda: "against Reply 2" in group.query_one(".hint").render().plain)
        assert group.query_one(".hint").render().plain.startswith(" 1   [2]   3 \n")


# What can be done with one message


async def test_thinking_is_folded_and_unfolds(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("why", "<think>let me see</think>\nBecause.")
        view = terminal.conversation.views[1]
        assert view.answer == "Because."
        fold = view.query_one(".thinking")
        assert (fold.display, fold.collapsed) == (True, True)
        await terminal.keys("alt+t")
        assert not fold.collapsed
        assert str(fold.query_one(".thought").render()) == "let me see"


async def test_messages_and_code_are_copied_with_a_way_out(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("code please", CODE)
        await terminal.keys("ctrl+y")
        assert terminal.app.clipboard == CODE
        assert "Not in your clipboard? ^s saves to a file." in terminal.notices[-1]
        await terminal.keys("alt+y")
        await terminal.until(lambda: len(terminal.app.screen_stack) == 3)
        await terminal.keys("down", "enter")
        await terminal.until(lambda: terminal.app.clipboard == "ls")
        reply = terminal.conversation.views[1].query_one(ReplyText)
        await terminal.pilot.click(reply, offset=(reply.size.width - 3, 2))
        assert terminal.app.clipboard == "print(1)"


async def test_a_message_is_saved_to_a_file_that_is_not_there_yet(desk, tmp_path):
    target = tmp_path / "reply.md"
    async with open_terminal(desk) as terminal:
        await terminal.send("say hi", "**hi**")
        for _ in range(2):
            await terminal.write(f"/save {target}")
            await terminal.keys("enter")
        assert target.read_text() == "**hi**\n"
        assert terminal.notices[-1] == f"{target} is there already: choose another name"


async def test_saving_asks_for_a_name(desk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with open_terminal(desk) as terminal:
        await terminal.send("say hi", "**hi**")
        await terminal.keys("ctrl+s")
        question = await terminal.dialog()
        question.query_one("Input").value = "hi.md"
        await terminal.keys("enter")
        await terminal.until(lambda: (tmp_path / "hi.md").exists())
        assert (tmp_path / "hi.md").read_text() == "**hi**\n"


async def test_a_fork_begins_with_the_path_up_to_the_selected_message(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("one", "first")
        await terminal.send("two", "second")
        original = terminal.screen.chat
        await terminal.keys("alt+up", "alt+up", "alt+up", "f")
        await terminal.until(lambda: terminal.screen.chat is not None and terminal.screen.chat.id != original.id)
        await terminal.until(lambda: terminal.texts == ["one", "first"])
        assert desk.texts(original) == ["one", "first", "two", "second"]


async def test_a_deleted_message_comes_back(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("one", "first")
        await terminal.send("two", "second")
        await terminal.keys("alt+up", "alt+up", "d")
        await terminal.until(lambda: terminal.texts == ["one", "first"])
        assert terminal.notices[-1] == "Message deleted. alt+z brings it back."
        assert terminal.screen.selected_id == terminal.path[1].id
        await terminal.keys("alt+z")
        await terminal.until(lambda: terminal.texts == ["one", "first", "two", "second"])
        await terminal.until(lambda: terminal.screen.selected_id == terminal.path[2].id)  # seen, and d deletes it again


async def test_a_long_message_is_folded(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("\n".join(f"line {i}" for i in range(40)), "ok")
        shown = terminal.conversation.views[0].query_one("LongText")
        assert str(shown.render()).endswith("line 13\n… 208 more characters")
        await terminal.keys("alt+up", "alt+up", "space")
        assert str(shown.render()).endswith("line 39")
