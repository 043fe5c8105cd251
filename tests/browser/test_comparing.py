"""One question under several settings on the page: chosen, written side by side, compared, taken along."""

import json

from playwright.sync_api import expect

from chat_page import PHONE
from paged_chat.engine.request import SamplingParams


def choose(chat, *variants):
    """Fills the dialog in; each variant is its fields by their labels."""
    chat.page.get_by_role("combobox", name="Replies").select_option("Compare…")
    dialog = chat.page.get_by_role("dialog", name="Compare")
    for index, fields in enumerate(variants):
        row = dialog.get_by_role("group", name=f"Variant {index + 1}")
        for label, value in fields.items():
            field = row.get_by_label(label, exact=True)
            (field.select_option if label in ("Settings", "System prompt") else field.fill)(value)
    dialog.get_by_role("button", name="Compare", exact=True).click()
    return dialog


def ask(chat, engine):
    choose(chat, {"Name": "cold"}, {"Name": "brief", "System prompt": "None"})
    expect(chat.page.locator(".compared-names")).to_have_text("Compare cold | brief")
    engine.enqueue("one fish")
    engine.enqueue("two fish")
    chat.ask("Fish?")
    return chat.page.locator(".reply-column")


def test_variants_are_chosen_asked_compared_and_one_is_picked(chat, engine, served):
    served.service.save_sampling_preset("warm", SamplingParams(temperature=1.5))
    dialog = choose(chat, {"Settings": "warm"}, {"Temperature": "0", "Seed": "7"})
    expect(dialog).to_have_count(0)
    expect(chat.page.locator(".compared-names")).to_have_text("Compare warm | temperature 0, seed 7")
    engine.enqueue("one fish")
    engine.enqueue("two fish")
    chat.ask("Fish?")
    columns = chat.page.locator(".reply-column")
    expect(columns.locator("strong")).to_have_text(["warm", "temperature 0, seed 7"])
    expect(columns.locator(".body")).to_have_text(["one fish", "two fish"])
    expect(chat.page.locator(".compared")).to_be_hidden()
    replies = [message for message in served.service.tree(chat.chat_id) if message.variant]
    assert [(r.sampling.temperature, r.variant.name) for r in replies] == [
        (1.5, "warm"),
        (0.0, "temperature 0, seed 7"),
    ]
    columns.nth(1).get_by_role("button", name="Go on with this one").click()
    expect(columns).to_have_count(0)
    expect(chat.reply()).to_have_text("two fish")


def test_what_differs_is_shown_with_lines_and_the_table_is_exported(chat, engine):
    columns = ask(chat, engine)
    chat.page.get_by_role("button", name="Diff", exact=True).click()
    expect(columns.nth(1).locator("ins")).to_have_text("two")
    expect(columns.nth(1).locator("del")).to_have_text("one")
    expect(columns.nth(0).locator(".body")).to_be_visible()
    legend = chat.page.locator(".diff-legend")
    expect(legend).to_have_text("against cold: underlined is only here, struck out only there")
    chat.page.get_by_role("combobox", name="Diff against").select_option("against brief")
    expect(columns.nth(0).locator("ins")).to_have_text("one")
    chat.page.get_by_role("button", name="Diff", exact=True).click()
    expect(columns.locator(".body:visible")).to_have_text(["one fish", "two fish"])
    chat.page.get_by_role("button", name="Export table").click()
    with chat.page.expect_download() as download:
        chat.page.get_by_role("menuitem", name="JSON").click()
    table = json.loads(download.value.path().read_text())
    assert [(reply["name"], reply["text"]) for reply in table["replies"]] == [
        ("cold", "one fish"),
        ("brief", "two fish"),
    ]


def test_all_settings_can_be_compared(chat, engine, served):
    chat.page.get_by_role("combobox", name="Replies").select_option("Compare…")
    dialog = chat.page.get_by_role("dialog", name="Compare")
    row = dialog.get_by_role("group", name="Variant 1")
    row.get_by_text("More settings").click()
    written = {
        "Temperature": "0.5",
        "Top p": "0.9",
        "Seed": "7",
        "Longest reply": "30",
        "Top k": "40",
        "Min p": "0.05",
        "Repetition penalty": "1.1",
        "Presence penalty": "-0.5",
        "Frequency penalty": "0.25",
        "Alternatives kept": "2",
        "Beam search": "1",
        "Length penalty": "2",
        "Stop texts": "###\nEND",
    }
    for label, value in written.items():
        row.get_by_label(label, exact=True).fill(value)
    row.get_by_label("Beam search ends", exact=True).select_option("once it surely is")
    row.get_by_label("Name", exact=True).fill("all")
    compare = dialog.get_by_role("button", name="Compare", exact=True)
    row.get_by_label("Min p", exact=True).fill("2")  # the browser says what is wrong, where it can be seen
    row.get_by_text("More settings").click()
    chat.page.set_viewport_size({"width": 1400, "height": 420})
    compare.click()
    expect(row.get_by_label("Min p", exact=True)).to_be_visible()
    assert row.get_by_label("Min p", exact=True).evaluate("field => field.validity.rangeOverflow")
    assert row.get_by_label("Min p", exact=True).evaluate(
        """field => {
            const { x, y, width, height } = field.getBoundingClientRect();
            return document.elementFromPoint(x + width / 2, y + height / 2) === field;
        }"""
    ), "the buttons at the end cover it"
    row.get_by_label("Min p", exact=True).fill("0.05")
    compare.click()
    expect(dialog).to_have_count(0)
    engine.enqueue("one")
    engine.enqueue("two")
    chat.ask("Fish?")
    [changed] = [m for m in served.service.tree(chat.chat_id) if m.variant and m.variant.name == "all"]
    assert changed.sampling == SamplingParams(
        temperature=0.5,
        top_p=0.9,
        seed=7,
        max_tokens=30,
        top_k=40,
        min_p=0.05,
        repetition_penalty=1.1,
        presence_penalty=-0.5,
        frequency_penalty=0.25,
        logprobs=2,
        length_penalty=2.0,
        early_stopping="never",
        stop=("###", "END"),
    )


def test_what_is_refused_is_said_in_the_dialog(chat, faults):
    faults.expected_errors.append("409")
    dialog = choose(chat, {"Name": "same"}, {"Name": "same"})
    expect(dialog.get_by_role("alert")).to_have_text(
        "two variants are called 'same': change one of them, or give it another name"
    )
    dialog.get_by_role("button", name="Cancel").click()
    expect(chat.page.get_by_role("combobox", name="Replies")).to_have_value("1")


def test_on_a_phone_variants_are_tabs(open_tab, engine):
    chat = open_tab(viewport=PHONE)
    ask(chat, engine)
    chat.page.get_by_role("tab", name="brief").click()
    expect(chat.page.locator(".reply-column .body:visible")).to_have_text(["two fish"])
    assert chat.overflow() == 0
