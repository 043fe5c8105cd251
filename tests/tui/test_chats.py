"""Chats in the terminal: the list, what can be done with one, search, settings, model."""

import json

from textual.widgets import Input, OptionList, TextArea

from paged_chat.tui.screens.search_screen import SearchScreen
from paged_chat.tui.screens.settings_screen import SettingsScreen
from paged_chat.tui.widgets.chat_list import ChatList
from terminal import open_terminal


def listed(terminal):
    chats = terminal.screen.query_one(ChatList)
    return [str(option.prompt) for option in chats.options]


async def dialog(terminal):
    """Waits for the dialog that was asked for."""
    await terminal.until(lambda: terminal.app.screen is not terminal.screen)
    await terminal.pilot.pause()
    return terminal.app.screen


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


async def test_a_temporary_chat_is_marked_and_never_stored(desk):
    async with open_terminal(desk) as terminal:
        await terminal.keys("alt+n")
        await terminal.send("secret")
        await terminal.until(lambda: listed(terminal) == ["▸ secret  (temporary)"])
        assert desk.store.chats() == []


async def test_rename_pin_archive(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples")
        await terminal.keys("f2")
        question = await dialog(terminal)
        question.query_one(Input).value = "Fruit"
        await terminal.keys("enter")
        await terminal.until(lambda: listed(terminal) == ["▸ Fruit"])
        await terminal.write("/pin")
        await terminal.keys("enter")
        await terminal.until(lambda: listed(terminal) == ["▸ Fruit  (pin)"])
        await terminal.write("/archive")
        await terminal.keys("enter")
        await terminal.until(lambda: listed(terminal) == [])
        assert terminal.notices[-1] == "Archived: search still finds the chat."


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
        await dialog(terminal)
        await terminal.keys("n")
        assert terminal.texts[:1] == ["secret"]
        await terminal.screen.run_action("screen.delete_chat")
        await dialog(terminal)
        await terminal.keys("y")
        await terminal.until(lambda: terminal.texts == [])


async def test_search_finds_a_message_on_another_branch_and_goes_there(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples", "crimson")
        desk.fake.enqueue("green")
        await terminal.keys("ctrl+r")
        await terminal.until(lambda: terminal.texts == ["apples", "green"] and terminal.is_idle)
        await terminal.keys("ctrl+n", "ctrl+f")
        search = await dialog(terminal)
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
        assert terminal.notices[-1] == "fruit.doc: end the name with .md or .json"


async def test_settings_are_kept_and_out_of_range_refused(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples")
        await terminal.keys("f3")
        settings = await dialog(terminal)
        assert isinstance(settings, SettingsScreen)
        settings.query_one("#system", TextArea).load_text("Be brief.")
        settings.query_one("#temperature", Input).value = "200"
        await terminal.keys("ctrl+s")
        assert terminal.notices[-1] == "temperature must be at least 0 and at most 100, not 200.0"
        settings.query_one("#temperature", Input).value = "0.5"
        settings.query_one("#max_tokens", Input).value = "64"
        await terminal.keys("ctrl+s")
        await terminal.until(lambda: terminal.screen.chat.system_prompt == "Be brief.")
        assert (terminal.screen.chat.sampling.temperature, terminal.screen.chat.sampling.max_tokens) == (0.5, 64)


async def test_the_system_prompt_and_presets_by_command(desk):
    async with open_terminal(desk) as terminal:
        for command in ("/system Be brief.", "/temp 0.9", "/save-preset warm", "/temp 0", "/preset warm"):
            await terminal.write(command)
            await terminal.keys("enter")
        assert terminal.screen.open_service.chat(terminal.screen.chat.id).sampling.temperature == 0.9
        await terminal.send("hello")
        assert desk.fake.models[0].prompts()[0].startswith("<s>system:Be brief.</s>")
        await terminal.write("/system -")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.screen.chat.system_prompt is None)


async def test_another_model_is_loaded_after_asking_when_a_reply_runs(desk):
    desk.fake.hold()
    async with open_terminal(desk) as terminal:
        await terminal.until(lambda: terminal.screen.engine_status and terminal.screen.engine_status.phase == "ready")
        await terminal.write("hello")
        await terminal.keys("enter")
        await terminal.until(lambda: len(terminal.texts) == 2)
        await terminal.write("/model other-1b")
        await terminal.keys("enter")
        await dialog(terminal)
        await terminal.keys("y")
        await terminal.until(lambda: terminal.screen.engine_status.model == "other-1b")
        await terminal.until(lambda: terminal.path[1].status == "stopped")


async def test_a_model_that_does_not_load_is_a_notice_and_chats_can_be_read(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("hello", "hi")
        desk.fake.load_error = MemoryError("too large")
        await terminal.write("/model giant")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.screen.engine_status.phase == "failed")
        assert terminal.notices[-1] == "The model didn't load. MemoryError: too large"
        assert terminal.texts == ["hello", "hi"]
        await terminal.write("still there?")
        await terminal.keys("enter")
        assert terminal.prompt.text == "still there?"
        assert terminal.notices[-1] == "MemoryError: too large"


async def test_the_palette_has_every_action_and_every_chat(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples", "red")
        await terminal.keys("ctrl+n", "ctrl+p")
        await dialog(terminal)
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
