"""One question under several settings in the terminal: asked, compared, picked, taken along."""

import json

from paged_chat.engine.request import SamplingParams
from paged_chat.tui.widgets.reply_group import ReplyGroup
from terminal import open_terminal


async def ask(terminal, words="temperature=0 temperature=0.9,top-p=0.5", replies=("a cat", "a dog")):
    await terminal.write(f"/compare {words}")
    await terminal.keys("enter")
    for reply in replies:
        terminal.fake.enqueue(reply)
    await terminal.send("pet?")
    return terminal.screen.query_one(ReplyGroup)


def hint(group):
    return str(group.query_one(".hint").render())


def diffs(group):
    return [str(view.query_one(".diff").render()) if view.query(".diff") else None for view in group.views]


async def test_a_question_is_asked_under_several_settings_and_one_reply_is_picked(desk):
    desk.service.save_sampling_preset("warm", SamplingParams(temperature=1.1))
    async with open_terminal(desk) as terminal:
        await terminal.write("/compare temperature=0 warm")
        await terminal.keys("enter")
        assert terminal.prompt.border_title == "compare temperature 0 | warm: Enter asks all, Esc leaves it"
        desk.fake.enqueue("a cat")
        desk.fake.enqueue("a dog")
        await terminal.send("pet?")
        group = terminal.screen.query_one(ReplyGroup)
        assert [(str(view.border_title), view.answer) for view in group.views] == [
            ("▸ temperature 0", "a cat"),
            ("warm", "a dog"),
        ]
        assert terminal.prompt.border_title is None
        await terminal.keys("alt+up", "right", "enter")
        await terminal.until(lambda: terminal.texts == ["pet?", "a dog"])
        await terminal.send("why?", "soft")
        assert terminal.path[3].variant is None


async def test_w_shows_what_differs_from_the_selected_reply(desk):
    async with open_terminal(desk) as terminal:
        group = await ask(terminal)
        await terminal.keys("alt+up", "left", "w")
        await terminal.until(lambda: diffs(group) == [None, "a catdog"])
        legend = "against temperature 0: underlined is only here, struck out only there; f7 ends it"
        assert hint(group).splitlines() == [legend, "2 replies used 3 blocks instead of 4"]
        await terminal.keys("f7")
        await terminal.until(lambda: diffs(group) == [None, None])
        await terminal.keys("right", "w")
        await terminal.until(lambda: diffs(group) == ["a dogcat", None])


async def test_the_table_is_exported_by_the_name_of_the_file(desk, tmp_path):
    async with open_terminal(desk) as terminal:
        await ask(terminal)
        target = tmp_path / "table.json"
        for name in ("table.json", "table.json", "table.txt"):
            await terminal.write(f"/table {tmp_path / name}")
            await terminal.keys("enter")
        table = json.loads(target.read_text())
        assert [(reply["name"], reply["text"]) for reply in table["replies"]] == [
            ("temperature 0", "a cat"),
            ("temperature 0.9, top p 0.5", "a dog"),
        ]
        assert terminal.notices[-2] == f"{target} is there already: choose another name"
        assert terminal.notices[-1].endswith("table.txt names no kind of file: end it with .md, .json or .csv")


async def test_esc_leaves_a_comparison_and_what_is_refused_begins_none(desk):
    async with open_terminal(desk) as terminal:
        await terminal.write("/compare temperature=0 poet")
        await terminal.keys("enter")
        assert terminal.notices == ["poet: no settings are kept as 'poet', and a setting is name=value"]
        assert terminal.screen.variants == []
        await terminal.write("/compare temperature=0 chat")
        await terminal.keys("enter", "escape")
        await terminal.send("pet?", "a cat")
        assert terminal.texts == ["pet?", "a cat"]
        await terminal.keys("f7")
        assert terminal.notices[-1] == "no replies stand side by side: ^o shows all of a message"
