"""The settings of a chat, and the model that all share."""

import re
import time

from playwright.sync_api import expect


def wait_until(is_so):
    """For what Gradio tells the server, of which the page shows nothing."""
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


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

    wait_until(is_saved)
    drawer.get_by_role("button", name="Close").click()
    expect(drawer).to_be_hidden()
    engine.enqueue("a2")
    chat.ask("Two")
    [_, (_, params, _)] = engine.models[0].submitted
    assert (params.temperature, params.seed) == (0.3, 42)


def test_a_system_prompt_is_kept_as_a_preset_and_used_in_another_chat(chat, engine, served):
    drawer = chat.open_settings()
    prompt = drawer.locator("#pc-system-prompt textarea")
    expect(prompt).to_be_editable()
    prompt.fill("Answer like a pirate.")
    preset = drawer.locator("#pc-prompt-preset input")
    preset.fill("Pirate")
    preset.press("Enter")
    drawer.get_by_role("button", name="Keep").first.click()
    wait_until(lambda: served.service.system_prompts() == {"Pirate": "Answer like a pirate."})
    engine.enqueue("Arr.")
    chat.ask("Hello")
    assert engine.models[0].prompts()[0].startswith("<s>system:Answer like a pirate.</s>")
    chat.page.get_by_role("button", name="+ New chat").click()
    chat.open_settings()
    expect(prompt).to_have_value("")
    preset.click()
    chat.page.get_by_role("option", name="Pirate").click()
    expect(prompt).to_have_value("Answer like a pirate.")


def test_another_model_waits_for_running_replies_or_stops_them(chat, engine):
    engine.enqueue("a long reply")
    engine.hold()
    chat.send("Tell")
    engine.let(6)
    expect(chat.reply()).to_have_text("a long")
    drawer = chat.open_settings()
    model = drawer.locator("#pc-model input")
    model.fill("other-model")
    model.press("Enter")
    drawer.get_by_role("button", name="Load this model").click()
    expect(chat.page.get_by_text("1 reply is being written")).to_be_visible()
    engine.may_load.clear()
    drawer.get_by_role("button", name="Stop replies and load").click()
    expect(chat.page.locator(".engine-note")).to_have_text("Loading other-model · 25 %")
    expect(chat.replies.locator(".cost")).to_contain_text("stopped")
    engine.may_load.set()
    expect(chat.page.locator(".engine-note")).to_be_hidden()
    expect(chat.page.locator(".model")).to_have_text("other-model")
