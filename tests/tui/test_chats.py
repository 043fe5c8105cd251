"""Chats in the terminal: the list, what can be done with one, search, settings, model."""

import json

from textual.widgets import Input, OptionList

from paged_chat.tui.screens.search_screen import SearchScreen
from paged_chat.tui.widgets.chat_list import ChatList
from terminal import open_terminal

NONE_ARCHIVED = "no chat is archived: /archive puts the one that is open there"


def listed(terminal):
    chats = terminal.screen.query_one(ChatList)
    return [str(option.prompt) for option in chats.options]


async def test_the_list_shows_chats_and_opens_them(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples")
        await terminal.keys("ctrl+n")
        await terminal.send("pears")
        await terminal.until(lambda: listed(terminal) == ["▸ pears", "  apples"])
        chats = terminal.screen.query_one(ChatList)
        chats.focus()
        await terminal.keys("down", "enter")
        await terminal.until(lambda: terminal.texts[:1] == ["apples"])
        await terminal.until(lambda: listed(terminal) == ["  pears", "▸ apples"])
        await terminal.keys("ctrl+pageup")
        await terminal.until(lambda: terminal.texts[:1] == ["pears"])
        await terminal.keys("ctrl+pagedown")
        await terminal.until(lambda: terminal.texts[:1] == ["apples"])


async def test_the_chats_of_before_are_listed_at_the_start(desk):
    desk.ask(desk.service.create_chat(), "apples", "are red")
    async with open_terminal(desk, size=(80, 24)) as terminal:
        await terminal.keys("ctrl+b")
        await terminal.until(lambda: listed(terminal) == ["  apples"])
        await terminal.keys("ctrl+b", "ctrl+b", "enter")
        await terminal.until(lambda: terminal.texts == ["apples", "are red"])
        assert not terminal.screen.query_one(ChatList).display


async def test_a_temporary_chat_is_marked_and_never_stored(desk):
    async with open_terminal(desk) as terminal:
        await terminal.keys("alt+n")
        await terminal.send("secret")
        await terminal.until(lambda: listed(terminal) == ["▸ secret     temporary"])
        assert desk.store.chats() == []


async def test_a_temporary_chat_is_kept(desk):
    async with open_terminal(desk) as terminal:
        await terminal.keys("alt+n")
        await terminal.send("secret", "hush")
        assert desk.store.chats() == []
        await terminal.write("/keep")
        await terminal.keys("enter")
        await terminal.until(lambda: listed(terminal) == ["▸ secret"])
        assert terminal.texts == ["secret", "hush"]
        [chat] = desk.store.chats()
        assert terminal.screen.chat.id == chat.id
        await terminal.write("/keep")
        await terminal.keys("enter")
        assert terminal.notices[-1] == "this chat is stored already"


async def test_rename_pin_archive(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples")
        await terminal.keys("f2")
        question = await terminal.dialog()
        question.query_one(Input).value = "Fruit"
        await terminal.keys("enter")
        await terminal.until(lambda: listed(terminal) == ["▸ Fruit"])
        await terminal.write("/pin")
        await terminal.keys("enter")
        await terminal.until(lambda: listed(terminal) == ["▸ Fruit            pin"])
        await terminal.write("/archive")
        await terminal.keys("enter")
        await terminal.until(lambda: listed(terminal) == [])
        assert terminal.notices[-1] == "Archived: /archived lists such chats."


async def test_an_archived_chat_is_found_in_their_list_and_brought_back(desk):
    async with open_terminal(desk) as terminal:
        await terminal.write("/archived")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.notices[-1:] == [NONE_ARCHIVED])
        for text in ("apples", "[b]pears[/b]"):
            await terminal.send(text, "ripe")
            await terminal.write("/archive")
            await terminal.keys("enter")
            await terminal.until(lambda: listed(terminal) == [])
            await terminal.keys("ctrl+n")
        await terminal.write("/archived")
        await terminal.keys("enter")
        options = (await terminal.dialog()).query_one(OptionList).options
        assert [str(option.prompt) for option in options] == ["[b]pears[/b]", "apples"]
        await terminal.keys("down", "enter")
        await terminal.until(lambda: terminal.texts == ["apples", "ripe"])
        await terminal.write("/archive")
        await terminal.keys("enter")
        await terminal.until(lambda: listed(terminal) == ["▸ apples"])
        assert [chat.title for chat in desk.store.chats(archived=True)] == ["[b]pears[/b]"]


async def test_a_deleted_chat_comes_back(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples", "red")
        await terminal.write("/delete")
        await terminal.keys("enter")
        await terminal.until(lambda: listed(terminal) == [])
        assert terminal.texts == []
        await terminal.keys("alt+z")
        await terminal.until(lambda: terminal.texts == ["apples", "red"])


async def test_a_temporary_chat_is_deleted_only_after_asking(desk):
    async with open_terminal(desk) as terminal:
        await terminal.keys("alt+n")
        await terminal.send("secret")
        await terminal.screen.run_action("screen.delete_chat")
        await terminal.dialog()
        await terminal.keys("n")
        assert terminal.texts[:1] == ["secret"]
        await terminal.screen.run_action("screen.delete_chat")
        await terminal.dialog()
        await terminal.keys("y")
        await terminal.until(lambda: terminal.texts == [])


async def test_search_finds_a_message_on_another_branch_and_goes_there(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples", "crimson")
        desk.fake.enqueue("green")
        await terminal.keys("ctrl+r")
        await terminal.until(lambda: terminal.texts == ["apples", "green"] and terminal.is_idle)
        await terminal.keys("ctrl+n", "ctrl+f")
        search = await terminal.dialog()
        assert isinstance(search, SearchScreen)
        search.query_one(Input).value = 'crim"'
        await terminal.pilot.pause()
        assert search.query_one(OptionList).option_count == 0
        search.query_one(Input).value = "crimson"
        await terminal.until(lambda: search.query_one(OptionList).option_count == 1)
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.texts == ["apples", "crimson"])
        await terminal.until(lambda: terminal.conversation.views[1].has_focus)


async def test_export_writes_the_format_that_the_name_says(desk, tmp_path):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples", "red")
        await terminal.write(f"/export {tmp_path / 'fruit.json'}")
        await terminal.keys("enter")
        await terminal.write(f"/export {tmp_path / 'fruit.md'}")
        await terminal.keys("enter")
        await terminal.write(f"/export {tmp_path / 'fruit.doc'}")
        await terminal.keys("enter")
        assert [chat["title"] for chat in json.loads((tmp_path / "fruit.json").read_text())["chats"]] == ["apples"]
        assert "red" in (tmp_path / "fruit.md").read_text()
        assert terminal.notices[-1].endswith("fruit.doc names no kind of file: end it with .md or .json")


async def test_what_was_exported_is_imported_and_what_can_not_be_read_is_refused(desk, tmp_path):
    (tmp_path / "broken.json").write_text('[{"role": "user"')
    async with open_terminal(desk) as terminal:
        await terminal.send("apples", "red")
        await terminal.write(f"/export {tmp_path / 'fruit.json'}")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.notices[-1].startswith("Exported to"))
        first = terminal.screen.chat
        await terminal.write(f"/import {tmp_path / 'fruit.json'}")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.screen.chat is not None and terminal.screen.chat.id != first.id)
        await terminal.until(lambda: terminal.texts == ["apples", "red"])
        assert terminal.notices[-1] == "1 chat imported"
        for name in ("broken.json", "gone.md"):
            await terminal.write(f"/import {tmp_path / name}")
            await terminal.keys("enter")
            await terminal.until(lambda name=name: name in terminal.notices[-1])
        assert len(desk.service.chats()) == 2


async def test_an_export_asks_for_a_name_where_none_is_given(desk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with open_terminal(desk) as terminal:
        await terminal.send("Two apples, please!", "red")
        await terminal.screen.run_action("screen.export_chat")
        question = await terminal.dialog()
        assert question.query_one(Input).value == "two-apples--please.md"
        await terminal.keys("enter")
        await terminal.until(lambda: (tmp_path / "two-apples--please.md").exists())


async def test_the_list_of_models_loads_the_one_that_is_chosen(desk, tmp_path):
    async with open_terminal(desk) as terminal:
        await terminal.keys("f4")
        models = (await terminal.dialog()).query_one(OptionList)
        names = [option.id for option in models.options]
        assert names[models.highlighted] == "fake-1b"
        await terminal.keys("up", "enter")
        other = names[models.highlighted]
        await terminal.until(lambda: terminal.screen.engine_status.model == other)
        await terminal.until(lambda: desk.fake.models[-1].model_name == other)
        await terminal.write("/model")
        await terminal.keys("enter")
        assert (await terminal.dialog()).query_one(OptionList).option_count == len(names) - 1
        await terminal.keys("escape")
        assert terminal.screen.engine_status.model == other


async def test_colours_are_changed_by_name_or_from_a_list(desk):
    async with open_terminal(desk) as terminal:
        await terminal.write("/theme textual-light")
        await terminal.keys("enter")
        assert terminal.app.theme == "textual-light"
        await terminal.write("/theme pitch-dark")
        await terminal.keys("enter")
        assert terminal.notices[-1] == "no theme is called pitch-dark: /theme lists them"
        terminal.prompt.write("/theme")
        await terminal.keys("enter")
        themes = (await terminal.dialog()).query_one(OptionList)
        await terminal.until(lambda: themes.option_count == len(terminal.app.available_themes))
        terminal.app.screen.query_one(Input).value = "nord"
        await terminal.until(lambda: themes.option_count == 1)
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.app.theme == "nord")


async def test_colours_that_were_chosen_are_there_at_the_next_start(desk):
    async with open_terminal(desk) as terminal:
        assert terminal.app.theme == "textual-dark"
        await terminal.write("/theme nord")
        await terminal.keys("enter")
    async with open_terminal(desk) as terminal:
        assert terminal.app.theme == "nord"
    desk.path.with_name("tui-theme.txt").write_text("gone\n")
    async with open_terminal(desk) as terminal:
        assert terminal.app.theme == "textual-dark"


async def test_a_mistyped_model_takes_no_model_away(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("hello", "hi")
        await terminal.write("/model nope")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.notices and "there is no model 'nope'" in terminal.notices[-1])
        assert terminal.screen.engine_status.model == "fake-1b"
        await terminal.send("still there?", "yes")
        assert terminal.texts[-1] == "yes"


async def test_another_model_is_loaded_after_asking_when_a_reply_runs(desk):
    desk.fake.hold()
    async with open_terminal(desk) as terminal:
        await terminal.until(lambda: terminal.screen.engine_status and terminal.screen.engine_status.phase == "ready")
        await terminal.write("hello")
        await terminal.keys("enter")
        await terminal.until(lambda: len(terminal.texts) == 2)
        await terminal.write("/model fakes/other-1b")
        await terminal.keys("enter")
        await terminal.dialog()
        await terminal.keys("y")
        await terminal.until(lambda: terminal.screen.engine_status.model == "fakes/other-1b")
        await terminal.until(lambda: terminal.path[1].status == "stopped")


async def test_a_model_that_does_not_load_is_a_notice_and_chats_can_be_read(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("hello", "hi")
        desk.fake.load_error = MemoryError("too large")
        await terminal.write("/model fakes/giant")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.screen.engine_status.phase == "failed")
        assert terminal.notices[-1] == "The model didn't load: MemoryError: too large"
        assert terminal.texts == ["hello", "hi"]
        await terminal.write("still there?")
        await terminal.keys("enter")
        assert terminal.prompt.text == "still there?"
        assert terminal.notices[-1] == "MemoryError: too large"


async def test_the_palette_has_every_action_and_every_chat(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples", "red")
        await terminal.keys("ctrl+n", "ctrl+p")
        await terminal.dialog()
        terminal.app.screen.query_one(Input).value = "apples"
        found = terminal.app.screen.query_one(OptionList)
        await terminal.until(lambda: found.option_count and "apples" in str(found.get_option_at_index(0).prompt))
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.texts == ["apples", "red"])


async def test_a_chat_that_another_window_deletes_is_closed(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples", "red")
        desk.service.delete_chat(terminal.screen.chat.id)
        await terminal.until(lambda: terminal.texts == [] and terminal.screen.chat is None)
        assert "This chat was deleted." in terminal.notices


async def test_what_another_window_adds_is_shown(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples", "red")
        desk.ask(terminal.screen.chat, "and pears", "green")
        await terminal.until(lambda: terminal.texts == ["apples", "red", "and pears", "green"])
