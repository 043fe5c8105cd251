"""The settings of a chat, and the model that all share."""

import re
from dataclasses import replace
from threading import Event

from playwright.sync_api import expect

from chat_desk import until
from paged_chat.app.api.remote_engine import RemoteEngine
from paged_chat.app.api.server_record import ServerRecord
from paged_chat.app.service.default_sampling import GENERAL_SAMPLING, default_sampling_of
from paged_chat.app.service.own_engine import find_own_model
from paged_chat.app.service.served_engine import model_figures
from paged_chat.engine.errors import ModelNotFound
from paged_chat.engine.progress import LoadProgress
from patience import PATIENCE_S


def test_sampling_settings_are_the_chats_own_and_are_used(chat, engine, served):
    engine.enqueue("a1")
    chat.ask("One")
    drawer = chat.open_settings()
    temperature = drawer.get_by_role("spinbutton", name=re.compile("Temperature"))
    expect(temperature).to_have_value("0.7")
    temperature.fill("0.3")
    temperature.press("Enter")
    drawer.get_by_role("spinbutton", name="Seed").fill("42")
    drawer.get_by_role("heading", name="Settings").click()

    def is_saved():
        sampling = served.service.chat(chat.chat_id).sampling
        return (sampling.temperature, sampling.seed) == (0.3, 42)

    until(is_saved)
    drawer.get_by_role("button", name="Close").click()
    expect(drawer).to_be_hidden()
    engine.enqueue("a2")
    chat.ask("Two")
    [_, (_, params, _)] = engine.models[0].submitted
    assert (params.temperature, params.seed) == (0.3, 42)


def test_settings_say_where_they_come_from_and_go_back_to_what_suits_the_model(open_tab, serve):
    served = serve(default_sampling=None)
    chat = open_tab(url=served.url)
    drawer = chat.open_settings()
    origin = drawer.locator("#pc-sampling-origin")
    suited = "Recommended for smollm2-135m: temperature 0.2, top p 0.9, repetition penalty 1.1."
    rest = "The rest are general defaults."
    expect(origin).to_have_text(f"{suited} {rest}")
    assert (chat.chat_id, served.service.chats()) == (None, []), "looking changes nothing"
    temperature = drawer.locator("#pc-temperature input[type=number]")
    type_into(temperature, "0.9")
    type_into(drawer.locator("#pc-seed input[type=number]"), "42")
    suited_else = suited.replace("temperature 0.2, ", "")
    expect(origin).to_have_text(f"Chosen for this chat: temperature 0.9, seed 42. {suited_else} {rest}")
    preset = drawer.locator("#pc-sampling-preset input")
    preset.fill("<b>bold</b>")
    preset.press("Enter")
    drawer.get_by_role("button", name="Keep").last.click()
    kept = f"As kept under <b>bold</b>. {suited_else} {rest}"
    expect(origin).to_have_text(kept)
    drawer.get_by_role("button", name="Reset all of these").click()
    expect(origin).to_have_text(f"{suited} {rest}")
    expect(temperature).to_have_value("0.2")
    assert served.service.chat(chat.chat_id).sampling == default_sampling_of("smollm2-135m").sampling
    preset.click()
    chat.page.get_by_role("option", name="<b>bold</b>").click()
    expect(origin).to_have_text(kept)
    expect(temperature).to_have_value("0.9")
    drawer.get_by_role("button", name="Drop").last.click()
    expect(origin).to_have_text(f"Chosen for this chat: temperature 0.9, seed 42. {suited_else} {rest}")
    # One by itself goes back to what suits the model too.
    drawer.locator("#pc-temperature").get_by_role("button", name="Reset to default value").click()
    expect(origin).to_have_text(f"Chosen for this chat: seed 42. {suited} {rest}")
    expect(temperature).to_have_value("0.2")
    # Of another model nothing is recommended: what the chat has is its own then.
    load_model(chat, "other-model")
    expect(origin).to_have_text(
        f"Chosen for this chat: temperature 0.2, top p 0.9, repetition penalty 1.1, seed 42. {rest}"
    )


def test_settings_stand_beside_the_conversation_under_a_head_as_wide_as_they_are(chat):
    drawer = chat.open_settings()
    box, head = drawer.bounding_box(), drawer.locator(".pc-settings-head").bounding_box()
    assert (head["x"], head["width"]) == (box["x"] + 1, drawer.evaluate("element => element.clientWidth"))
    field = chat.page.locator(".composer").bounding_box()
    assert field["x"] + field["width"] < box["x"]


def type_into(field, text):
    """As a person does, over what stands there, and on to the next field."""
    field.press("Control+A")
    field.press("Delete")
    field.press_sequentially(text)
    field.press("Tab")


def test_what_is_no_number_for_a_setting_is_told_and_the_setting_stays(chat, served):
    drawer = chat.open_settings()
    drawer.get_by_role("button", name="More").last.click()

    def number(name):
        return drawer.locator(f"#pc-{name} input[type=number]")

    told = {
        ("temperature", ""): "Temperature: a number from 0 to 2. It stays 0.7.",
        ("temperature", "1e9"): "Temperature: a number from 0 to 2. It stays 0.7.",
        ("top_p", "-5"): "Top p: a number from 0.01 to 1. It stays 0.95.",
        ("top_k", "0.5"): "Top k: a whole number from 0 to 200. It stays 0.",
        ("beam_width", "1e400"): "Beam search: a whole number from 1 to 16. It stays 1.",
        ("max_tokens", "-1"): "Longest reply, in tokens: a whole number from 1 to 2,147,483,647. It stays 1024.",
        ("seed", "99999999999999999999"): "Seed: a whole number from 0 to 9,007,199,254,740,991. It stays empty.",
    }
    for (name, text), words in told.items():
        before = number(name).input_value()
        type_into(number(name), text)
        expect(chat.notice.get_by_text(words, exact=True)).to_be_visible()
        expect(number(name)).to_have_value(before)
    type_into(number("max_tokens"), "")  # which has a meaning of its own
    type_into(number("min_p"), "0.25")
    kept = GENERAL_SAMPLING
    until(lambda: served.service.chat(chat.chat_id).sampling == replace(kept, max_tokens=None, min_p=0.25))


def test_the_way_out_of_the_settings_is_waited_for(chat):
    """On a busy machine Gradio put it up after the settings were read, and a keyboard was left where it was."""
    chat.open_settings()
    chat.page.locator("#pc-settings-close").click()
    chat.page.evaluate(
        """() => {
            const close = document.getElementById("pc-settings-close"), { parentElement } = close;
            close.remove();
            addEventListener("paged-chat:settings-read", () => setTimeout(() => parentElement.append(close), 100));
        }"""
    )
    chat.open_settings()
    expect(chat.page.locator("#pc-settings-close")).to_be_focused()


def test_beams_are_searched_with_the_settings_that_go_with_them(chat, served, engine):
    drawer = chat.open_settings()
    drawer.get_by_role("button", name="More").last.click()
    type_into(drawer.locator("#pc-beam_width input[type=number]"), "3")
    fault = drawer.locator("#pc-settings-fault")
    expect(fault).to_contain_text(
        "Not kept yet: “Beam search” 3 looks for the likeliest replies and draws nothing: set “Temperature” to 0"
    )
    drawer.get_by_role("button", name="Reset all of these").click()
    expect(fault).to_be_hidden()
    type_into(drawer.locator("#pc-beam_width input[type=number]"), "3")
    expect(fault).to_be_visible()
    type_into(drawer.locator("#pc-temperature input[type=number]"), "0")
    expect(fault).to_be_hidden()
    type_into(drawer.locator("#pc-num_replies input[type=number]"), "2")
    type_into(drawer.locator("#pc-length_penalty input[type=number]"), "0.5")
    type_into(drawer.locator("#pc-max_tokens input[type=number]"), "12")
    drawer.locator("#pc-early_stopping input").click()
    chat.page.get_by_role("option", name="once it surely is").click()
    wanted = replace(
        GENERAL_SAMPLING, beam_width=3, temperature=0.0, n=2, max_tokens=12, length_penalty=0.5, early_stopping="never"
    )
    until(lambda: served.service.chat(chat.chat_id).sampling == wanted)
    chat.page.locator("#pc-settings-close").click()
    expect(chat.page.get_by_label("Replies", exact=True)).to_have_value("2")
    engine.hold()
    chat.send("Greet")
    engine.let(6)
    expect(chat.replies.first.locator(".cost")).to_contain_text("searching: 3 beams · 6 tokens · ")
    engine.go()
    expect(chat.page.locator(".reply-column")).to_have_count(2)
    chat.wait_for_end()
    [(_, params, _)] = engine.models[0].submitted
    assert (params.beam_width, params.n, params.length_penalty, params.early_stopping) == (3, 2, 0.5, "never")


def test_a_system_prompt_is_kept_as_a_preset_and_used_in_another_chat(chat, engine, served, faults):
    faults.expected_errors.append("500")
    drawer = chat.open_settings()
    drawer.get_by_role("button", name="Keep").first.click()
    expect(chat.notice).to_contain_text("Which one? Type a name into the field beside the button.")
    prompt = drawer.locator("#pc-system-prompt textarea")
    expect(prompt).to_be_editable()
    prompt.fill("Answer like a pirate.")
    preset = drawer.locator("#pc-prompt-preset input")
    preset.fill("Pirate")
    preset.press("Enter")
    drawer.get_by_role("button", name="Keep").first.click()
    until(lambda: served.service.system_prompts() == {"Pirate": "Answer like a pirate."})
    engine.enqueue("Arr.")
    chat.ask("Hello")
    assert engine.models[0].prompts()[0].startswith("<s>system:Answer like a pirate.</s>")
    chat.page.get_by_role("button", name="+ New chat").click()
    chat.open_settings()
    expect(prompt).to_have_value("")
    preset.click()
    chat.page.get_by_role("option", name="Pirate").click()
    expect(prompt).to_have_value("Answer like a pirate.")


def load_model(chat, name):
    drawer = chat.page.locator("#pc-settings")
    field = drawer.locator("#pc-model input")
    field.fill(name)
    field.press("Enter")
    drawer.get_by_role("button", name="Load this model").click()


def test_another_model_waits_for_running_replies_or_stops_them(chat, engine):
    engine.enqueue("a long reply")
    engine.hold()
    chat.send("Tell")
    engine.let(6)
    expect(chat.reply()).to_have_text("a long")
    drawer = chat.open_settings()
    load_model(chat, "other-model")
    words = "1 reply is being written: another model would end that"
    expect(chat.page.get_by_text(words)).to_be_visible()
    engine.may_load.clear()
    drawer.get_by_role("button", name="Load it all the same").click()
    expect(chat.page.locator(".engine-note")).to_have_text("Loading other-model · 25 %")
    expect(chat.replies.locator(".cost")).to_contain_text("stopped")
    engine.may_load.set()
    expect(chat.page.locator(".engine-note")).to_be_hidden()
    expect(chat.page.locator(".model")).to_have_text("other-model")


def test_a_wrong_name_is_refused_in_its_place_and_the_old_model_goes_on(open_tab, serve, tmp_path):
    served = serve(find_model=find_own_model)
    chat = open_tab(url=served.url)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF, and no more")
    drawer = chat.open_settings()
    refusal = drawer.locator("#pc-model-refusal")
    load_model(chat, "smolm2-135m")
    expect(refusal).to_contain_text("there is no model 'smolm2-135m': it is neither a name of the catalogue")
    load_model(chat, str(broken))
    expect(refusal).to_contain_text("broken.gguf")
    expect(drawer.get_by_role("button", name="Load it all the same")).to_be_hidden()
    served.engine.enqueue("Still here.")
    chat.ask("Are you there?")
    expect(chat.reply()).to_have_text("Still here.")
    assert [model.model_name for model in served.engine.models] == ["smollm2-135m"]


def test_a_download_is_shown_and_what_comes_of_it(open_tab, serve):
    may_end, error = Event(), ModelNotFound("the hub has no public model 'owner/tiny'")

    def find_model(model):
        def fetch(on_progress):
            on_progress(LoadProgress("download", 25, 100))
            assert may_end.wait(PATIENCE_S)
            raise error

        return fetch

    served = serve(find_model=find_model)
    chat = open_tab(url=served.url)
    chat.open_settings()
    load_model(chat, "owner/tiny")
    words = "Downloading tiny · 25 % of 0 MB; smollm2-135m answers meanwhile"
    expect(chat.page.locator(".welcome .loading")).to_have_text(words)
    served.engine.enqueue("Still here.")
    chat.ask("Are you there?")
    expect(chat.reply()).to_have_text("Still here.")
    expect(chat.page.locator(".engine-note")).to_have_text(words)
    may_end.set()
    expect(chat.notice).to_contain_text("the hub has no public model 'owner/tiny'. smollm2-135m goes on answering.")
    expect(chat.page.locator(".engine-note")).to_be_hidden()


def test_another_model_is_not_taken_from_a_program_that_uses_this_one_without_asking(chat, served, engine):
    address = served.url.removeprefix("http://")
    terminal = RemoteEngine(ServerRecord(command="web", address=address, pid=0, token="secret"))
    try:
        terminal.call(model_figures.ask()).result(PATIENCE_S)
        drawer = chat.open_settings()
        load_model(chat, "other-model")
        words = "1 other program uses this model: another model would end that"
        expect(chat.page.get_by_text(words)).to_be_visible()
        assert [one.model_name for one in engine.models] == [served.service.engine_status.model]
        drawer.get_by_role("button", name="Load it all the same").click()
        expect(chat.page.locator(".model")).to_have_text("other-model")
        assert terminal.ended.exception(20) is not None
    finally:
        terminal.close()


def test_what_was_chosen_before_the_chat_began_is_not_lost_with_the_settings(chat, engine):
    """The settings are a chat's, so the chat begins when the first is set."""
    chat.field.fill("Say it")
    chat.page.get_by_label("Replies", exact=True).select_option("3")
    type_into(chat.open_settings().locator("#pc-seed input[type=number]"), "42")
    expect(chat.rows).to_have_count(1)
    chat.page.locator("#pc-settings-close").click()
    expect(chat.field).to_have_value("Say it")
    engine.enqueue("a", "b", "c")
    chat.field.press("Enter")
    expect(chat.replies).to_have_count(3)
    chat.wait_for_end()
    expect(chat.page.locator(".sharing")).to_have_text("3 replies used 4 blocks instead of 6")


def test_looking_at_the_settings_begins_no_chat_and_setting_something_begins_one(chat, engine, served):
    served.service.save_sampling_preset("cold", replace(GENERAL_SAMPLING, temperature=0.1))
    chat.field.fill("half a question")
    drawer = chat.open_settings()
    system_prompt = drawer.locator("#pc-system-prompt textarea")
    system_prompt.focus()
    drawer.get_by_role("button", name="Reset all of these").click()
    preset = drawer.locator("#pc-sampling-preset input")
    preset.fill("no such settings")
    preset.press("Enter")
    drawer.get_by_role("button", name="Close").click()
    chat.page.reload()
    expect(chat.page.get_by_text("What the model has read once")).to_be_visible()
    assert (chat.chat_id, served.service.chats()) == (None, [])

    chat.field.fill("half a question")
    drawer = chat.open_settings()
    seed = drawer.locator("#pc-seed input[type=number]")
    seed.focus()
    chat.page.keyboard.type("42")
    until(lambda: [one.sampling.seed for one in served.service.chats()] == [42])
    expect(chat.rows).to_have_count(1)
    expect(seed).to_be_focused()
    expect(chat.field).to_have_value("half a question")
    system_prompt.fill("Be brief.")
    preset.click()
    chat.page.get_by_role("option", name="cold").click()
    until(lambda: served.service.chats()[0].sampling.temperature == 0.1)
    [begun] = served.service.chats()
    assert (begun.id, begun.system_prompt) == (chat.chat_id, "Be brief.")
    engine.enqueue("an answer")
    chat.ask("half a question")
    assert [one.id for one in served.service.chats()] == [begun.id]
