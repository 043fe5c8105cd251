"""System prompts and settings in the terminal: chosen, refused, reset, kept under a name."""

import pytest
from textual import events
from textual.widgets import Input, Label, Select, Static, TextArea

from paged_chat.tui.screens.settings_screen import SettingsScreen
from paged_chat.tui.widgets.title_line import TitleLine
from terminal import open_terminal


async def run(terminal, *commands):
    for command in commands:
        terminal.prompt.load_text("")  # what was refused stands there again
        await terminal.write(command)
        await terminal.keys("enter")


async def open_settings(terminal):
    await terminal.keys("f3")
    settings = await terminal.dialog()
    assert isinstance(settings, SettingsScreen)
    return settings


async def test_settings_are_kept_and_out_of_range_refused(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("apples")
        settings = await open_settings(terminal)
        settings.query_one("#system", TextArea).load_text("Be brief.")
        settings.query_one("#temperature", Input).value = "200"
        await terminal.keys("ctrl+s")
        refused = "temperature must be at least 0 and at most 100, not 200"
        await terminal.until(lambda: terminal.notices[-1:] == [refused])
        assert settings.focused is settings.query_one("#temperature", Input)
        settings.query_one("#temperature", Input).value = "0.5"
        settings.query_one("#max_tokens", Input).value = "64"
        await terminal.keys("ctrl+s")
        await terminal.until(lambda: terminal.screen.system_prompt == "Be brief.")
        assert (terminal.screen.sampling.temperature, terminal.screen.sampling.max_tokens) == (0.5, 64)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (140, 45)])
async def test_what_the_setting_in_focus_means_is_told_in_full(desk, size):
    async with open_terminal(desk, size=size) as terminal:
        settings = await open_settings(terminal)
        settings.query_one("#temperature", Input).focus()
        await terminal.keys("down", "down", "up")
        about = settings.query_one("#about", Static)
        words = "top p, above 0 to 1. Draw from the tokens that reach this together"
        await terminal.until(lambda: str(about.render()) == words)
        assert settings.region.contains_region(about.region)
        assert about.region.height * about.region.width >= len(words)


async def test_what_is_typed_just_before_ctrl_s_is_kept_as_well(desk):
    async with open_terminal(desk) as terminal:
        settings = await open_settings(terminal)
        settings.query_one("#temperature", Input).focus()
        for key in ("ctrl+u", "0", "full_stop", "5", "ctrl+s"):
            terminal.app.post_message(events.Key(key, {"full_stop": "."}.get(key, key if len(key) == 1 else None)))
        await terminal.until(lambda: terminal.app.screen is terminal.screen)
        await terminal.until(lambda: terminal.screen.sampling.temperature == 0.5)


async def test_the_system_prompt_and_presets_by_command(desk):
    async with open_terminal(desk) as terminal:
        await run(terminal, "/system Be brief.", "/temp 0.9", "/save-preset warm", "/temp 0", "/preset warm")
        assert terminal.screen.sampling.temperature == 0.9
        await terminal.send("hello")
        assert desk.fake.models[0].prompts()[0].startswith("<s>system:Be brief.</s>")
        await run(terminal, "/system -")
        await terminal.until(lambda: terminal.screen.system_prompt is None)


async def test_reset_sets_all_as_in_a_new_chat(desk):
    async with open_terminal(desk) as terminal:
        await run(terminal, "/system Be brief.", "/temp 0.9", "/n 3")
        settings = await open_settings(terminal)
        await terminal.keys("ctrl+r")
        assert settings.query_one("#temperature", Input).value == "0"
        await terminal.keys("ctrl+s")
        await terminal.until(lambda: terminal.screen.system_prompt is None)
        assert terminal.screen.sampling == desk.service.default_sampling


async def test_settings_say_where_they_come_from(desk):
    async with open_terminal(desk) as terminal:
        settings = await open_settings(terminal)
        origin = settings.query_one("#origin", Label)
        assert str(origin.render()) == "These are the general defaults."
        await terminal.keys("escape")
        await terminal.until(lambda: terminal.app.screen is terminal.screen)
        await run(terminal, "/n 3", "/presence 0.5")
        settings = await open_settings(terminal)
        origin = settings.query_one("#origin", Label)
        words = "Chosen for this chat: presence penalty 0.5, n 3. The rest are general defaults."
        assert str(origin.render()) == words
        await terminal.keys("ctrl+r")
        await terminal.until(lambda: str(origin.render()) == "These are the general defaults.")


async def test_looking_at_the_settings_of_a_new_chat_makes_no_chat(desk):
    async with open_terminal(desk) as terminal:
        await open_settings(terminal)
        await terminal.keys("escape")
        await terminal.until(lambda: terminal.app.screen is terminal.screen)
        await run(terminal, "/system", "/temp", "/save-preset usual")
        await terminal.until(lambda: "Kept as usual: /preset usual brings it back" in terminal.notices)
        assert "This chat has no system prompt of its own." in terminal.notices
        assert desk.service.chats() == []
        settings = await open_settings(terminal)
        settings.query_one("#temperature", Input).value = "0.5"
        await terminal.keys("ctrl+s")
        await terminal.until(lambda: terminal.screen.sampling.temperature == 0.5)
        assert desk.service.chats() == []


async def test_what_was_chosen_for_a_new_chat_holds_from_its_first_message_on_and_is_forgotten_with_it(desk):
    async with open_terminal(desk) as terminal:
        await run(terminal, "/temp 0.5", "/system Be brief.", "/new")
        await terminal.until(lambda: terminal.screen.system_prompt is None)
        assert terminal.screen.sampling == desk.service.default_sampling
        await run(terminal, "/n 2", "/system Rhyme.", "/temp 0.9")
        assert desk.service.chats() == []
        await terminal.send("hello", "hi", "ho")
        [chat] = desk.service.chats()
        assert (chat.system_prompt, chat.sampling.n, chat.sampling.temperature) == ("Rhyme.", 2, 0.9)


async def test_a_command_goes_on_from_the_one_before_though_no_news_of_that_has_come(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("hello", "hi")
        await run(terminal, "/temp 0.9")
        terminal.screen.workers.cancel_group(terminal.screen, "chat")
        await run(terminal, "/n 3", "/max 64")
        await terminal.until(lambda: any("max tokens 64" in notice for notice in terminal.notices))
        [chat] = desk.service.chats()
        assert (chat.sampling.temperature, chat.sampling.n, chat.sampling.max_tokens) == (0.9, 3, 64)


async def test_esc_leaves_settings_as_they_were(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("hello", "hi")
        await run(terminal, "/temp 0.9")
        settings = await open_settings(terminal)
        settings.query_one("#temperature", Input).value = "0.1"
        await terminal.keys("escape")
        await terminal.until(lambda: terminal.app.screen is terminal.screen)
        assert desk.service.chat(terminal.screen.chat.id).sampling.temperature == 0.9


async def test_a_system_prompt_is_kept_and_used_in_another_chat(desk):
    async with open_terminal(desk) as terminal:
        await run(terminal, "/use-system")
        assert terminal.notices[-1].startswith("No system prompts are kept yet")
        await run(terminal, "/save-system brief")
        assert terminal.notices[-1].startswith("this chat has no system prompt of its own")
        await run(terminal, "/system Be brief.", "/save-system brief", "/new", "/use-system brief")
        await terminal.until(lambda: terminal.screen.system_prompt == "Be brief.")
        await run(terminal, "/forget brief")
        assert desk.service.system_prompts() == {}
        await run(terminal, "/use-system brief")
        assert terminal.notices[-1] == "no system prompt is called brief: /use-system lists them"


async def test_the_dialog_keeps_a_system_prompt_and_settings_under_names(desk):
    async with open_terminal(desk) as terminal:
        settings = await open_settings(terminal)
        await terminal.keys("f2")
        await terminal.until(lambda: terminal.notices and terminal.notices[-1].startswith("there is no system prompt"))
        settings.query_one("#system", TextArea).load_text("Be brief.")
        settings.query_one("#temperature", Input).value = "0.5"
        for key, name in (("f2", "brief"), ("f3", "half")):
            await terminal.keys(key)
            await terminal.until(lambda: terminal.app.screen is not settings)
            terminal.app.screen.query_one(Input).value = name
            await terminal.keys("enter")
            await terminal.until(lambda: terminal.app.screen is settings)
        assert desk.service.system_prompts() == {"brief": "Be brief."}
        assert desk.service.sampling_presets()["half"].temperature == 0.5
        await terminal.keys("ctrl+r")
        settings.query_one("#prompts", Select).value = "brief"
        settings.query_one("#presets", Select).value = "half"
        await terminal.until(lambda: settings.query_one("#system", TextArea).text == "Be brief.")
        await terminal.until(lambda: settings.query_one("#temperature", Input).value == "0.5")


async def test_beam_search_is_set_by_commands_and_asks_for_temperature_0(desk):
    async with open_terminal(desk) as terminal:
        await run(terminal, "/temp 0.7", "/beams 4")
        await terminal.until(lambda: any("temperature" in notice and "beam" in notice for notice in terminal.notices))
        await run(terminal, "/temp 0", "/beams 4", "/n 2", "/length-penalty 0.5", "/early-stopping never")
        await terminal.until(lambda: terminal.screen.sampling.early_stopping == "never")
        sampling = terminal.screen.sampling
        assert (sampling.temperature, sampling.beam_width, sampling.n, sampling.length_penalty) == (0.0, 4, 2, 0.5)
        title = str(terminal.screen.query_one(TitleLine).render())
        assert title.endswith("temp 0  beams 4  n 2")
        await run(terminal, "/beams")
        await terminal.until(
            lambda: any(notice.startswith("beam width 4. /beams count: ") for notice in terminal.notices)
        )
