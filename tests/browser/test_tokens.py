"""A reply token by token on the page, and a branch from one."""

import re

import pytest
from playwright.sync_api import expect

from chat_page import PHONE
from paged_chat.engine.request import SamplingParams

ODDS = {"c": {"c": 0.5, "b": 0.25, "r": 0.125}, "t": {"s": 0.75, "t": 0.125}}


@pytest.fixture
def kept_chat(served, engine):
    """A chat whose alternatives are kept, with "a **cat**" in it."""
    engine.odds |= ODDS
    chat = served.service.create_chat(sampling=SamplingParams(max_tokens=None, logprobs=3))
    engine.enqueue("a **cat**")
    served.service.send(chat.id, "pet?")
    with served.service.watch(chat.id, until_idle=True) as watcher:
        list(watcher)
    return chat


def tokens_of(page):
    page.press(page.replies.last, "Tokens")
    tokens = page.replies.last.locator(".token-text .token")
    expect(tokens.first).to_be_visible()
    return tokens


def test_a_token_shows_what_else_could_stand_there_and_the_reply_branches(kept_chat, open_tab, engine):
    page = open_tab(kept_chat.id)
    expect(page.reply()).to_have_text("a cat")
    tokens = tokens_of(page)
    expect(page.reply()).to_be_hidden()
    expect(page.replies.last.locator(".token-note")).to_have_text(
        "Plain text, token by token; Markdown isn't drawn here."
    )
    assert tokens.all_text_contents() == ["a", " ", "*", "*", "c", "a", "t", "*", "*", "</s>"]
    expect(tokens.nth(4)).to_have_class("token is-likely")
    expect(tokens.nth(6)).to_have_class("token is-unlikely")

    tokens.nth(4).click()
    alternatives = page.page.get_by_role("dialog", name="token 5 of 10, 50 %")
    assert alternatives.get_by_role("button").all_inner_texts()[:3] == ["c\nwritten\n50 %", "b\n25 %", "r\n12 %"]
    alternatives.get_by_role("button", name="b 25 %").click()
    cost = alternatives.get_by_role("status")
    expect(cost).to_contain_text("“b” in place of “c”: reuses 1 block and 9 tokens, computes 1 token")
    engine.enqueue("ird**")
    alternatives.get_by_role("button", name="Branch here").click()
    expect(page.reply()).to_have_text("a bird")
    page.wait_for_end()
    expect(page.replies.last.locator(".sibling-count")).to_have_text("2 / 2")
    page.press(page.replies.last, "The one before")
    expect(page.reply()).to_have_text("a cat")


def test_a_list_opens_where_the_pointer_rests_and_goes_with_it(kept_chat, open_tab):
    page = open_tab(kept_chat.id)
    tokens = tokens_of(page)
    tokens.nth(6).hover()
    alternatives = page.page.locator(".alternatives")
    expect(alternatives).to_be_visible()
    assert alternatives.get_by_role("button").all_inner_texts()[:2] == ["s\n75 %", "t\nwritten\n12 %"]
    page.field.hover()
    expect(alternatives).to_be_hidden()


def test_the_keyboard_does_it_all(kept_chat, open_tab, engine):
    page = open_tab(kept_chat.id)
    tokens = tokens_of(page)
    keys = page.page.keyboard
    expect(tokens.first).to_be_focused()
    for _ in range(5):
        keys.press("ArrowRight")
    keys.press("ArrowLeft")
    expect(tokens.nth(4)).to_be_focused()
    keys.press("Enter")
    keys.press("ArrowDown")
    keys.press("Enter")
    expect(page.page.get_by_role("button", name="Branch here")).to_be_focused()
    keys.press("Escape")
    expect(tokens.nth(4)).to_be_focused()
    expect(page.page.locator(".alternatives")).to_be_hidden()
    keys.press("Enter")
    keys.press("ArrowDown")
    keys.press("Enter")
    expect(page.page.get_by_role("button", name="Branch here")).to_be_focused()
    engine.enqueue("ear**")
    keys.press("Enter")
    expect(page.reply()).to_have_text("a bear")
    page.wait_for_end()
    tokens_of(page)
    keys.press("Escape")
    expect(page.reply()).to_be_visible()


def test_alternatives_that_were_not_kept_are_worked_out_for_a_token(chat, engine):
    engine.odds |= ODDS
    engine.enqueue("a cat")
    chat.ask("pet?")
    tokens = tokens_of(chat)
    expect(chat.replies.last.locator(".token-note")).to_contain_text("Alternatives weren't kept for this reply")
    assert tokens.all_text_contents() == ["a", " ", "c", "a", "t", "</s>"]
    tokens.nth(2).click()
    chat.page.wait_for_timeout(300)  # longer than the pointer must rest for a list to open by itself
    alternatives = chat.page.get_by_role("dialog", name="token 3 of 6")
    expect(alternatives.get_by_role("status")).to_contain_text("computes 1 token")
    engine.enqueue("c")
    alternatives.get_by_role("button", name="Work out its alternatives").click()
    weighed = chat.page.get_by_role("dialog", name="token 3 of 6, 50 %")
    expect(weighed.get_by_role("button").nth(1)).to_have_text(re.compile("^b.*25 %$"))
    expect(tokens.nth(2)).to_have_class(re.compile("is-likely"))
    weighed.get_by_role("button").nth(1).click()
    engine.enqueue("at")
    weighed.get_by_role("button", name="Branch here").click()
    expect(chat.reply()).to_have_text("a bat")


def test_the_setting_keeps_them(chat, served, engine):
    engine.odds |= ODDS
    drawer = chat.open_settings()
    drawer.get_by_role("button", name="More", exact=False).last.click()
    drawer.locator("#pc-num_alternatives input[type=number]").fill("2")
    drawer.locator("#pc-num_alternatives input[type=number]").press("Tab")
    chat.page.locator("#pc-settings-close").click()
    engine.enqueue("cat")
    chat.ask("pet?")
    [kept] = [one for one in served.service.chats() if one.id == chat.chat_id]
    assert kept.sampling.logprobs == 2
    tokens = tokens_of(chat)
    tokens.first.click()
    expect(chat.page.locator(".alternative")).to_have_count(2)


def test_on_a_phone_the_list_stands_at_the_bottom(kept_chat, open_tab):
    page = open_tab(kept_chat.id, viewport=PHONE, has_touch=True)
    page.replies.last.get_by_role("button", name=re.compile("^Tokens")).tap()
    tokens = page.replies.last.locator(".token-text .token")
    tokens.nth(4).tap()
    alternatives = page.page.locator(".alternatives")
    box = alternatives.bounding_box()
    assert (box["x"], box["width"], round(box["y"] + box["height"])) == (0, PHONE["width"], PHONE["height"])
    assert all(button.bounding_box()["height"] >= 44 for button in alternatives.get_by_role("button").all())
    assert page.overflow() == 0


def test_a_list_goes_with_its_chat(kept_chat, open_tab):
    page = open_tab(kept_chat.id)
    tokens_of(page).nth(4).click()
    expect(page.page.locator(".alternatives")).to_be_visible()
    page.page.keyboard.press("Control+Shift+O")
    expect(page.page.locator(".welcome")).to_be_visible()
    # What is left of it would look for its token.
    page.page.evaluate("document.querySelector('.chat-list').dispatchEvent(new Event('scroll'))")
    expect(page.page.locator(".alternatives")).to_have_count(0)
