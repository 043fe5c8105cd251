"""The page itself: while the model loads, on a phone, by keyboard alone, with a long history."""

import re
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from chat_page import PHONE
from fake_engine import FakeEngine
from paged_chat.app.imported_chat import ImportedChat, ImportedMessage


def imported_history(num_messages: int) -> ImportedChat:
    """Question 0, answer 0, question 1 and so on."""
    now = datetime.now(UTC)
    messages = tuple(
        ImportedMessage(
            parent=index - 1 if index else None,
            role="assistant" if index % 2 else "user",
            text=f"{'answer' if index % 2 else 'question'} {index // 2}",
            created_at=now,
        )
        for index in range(num_messages)
    )
    return ImportedChat(
        title="A long one", messages=messages, active_leaf=num_messages - 1, created_at=now, updated_at=now
    )


def test_the_page_is_there_while_the_model_loads(open_tab, serve):
    engine = FakeEngine()
    engine.may_load.clear()
    served = serve(engine=engine)
    chat = open_tab(url=served.url)
    expect(chat.page.locator(".welcome .loading")).to_have_text("Loading smollm2-135m · 25 %")
    engine.enqueue("Here I am.")
    chat.send("Are you there?")
    expect(chat.replies).to_have_attribute("aria-busy", "true")
    expect(chat.page.locator(".engine-note")).to_have_text("Loading smollm2-135m · 25 %")
    engine.may_load.set()
    expect(chat.reply()).to_have_text("Here I am.")
    expect(chat.page.locator(".engine-note")).to_be_hidden()


def test_a_model_that_does_not_load_is_explained(open_tab, serve, faults):
    faults.expected_errors.append("409")
    engine = FakeEngine()
    engine.load_error = RuntimeError("no memory left")
    chat = open_tab(url=serve(engine=engine).url)
    expect(chat.page.locator(".welcome .loading")).to_contain_text("no memory left")
    chat.send("Hello")
    expect(chat.notice).to_contain_text("no memory left")
    expect(chat.field).to_have_value("Hello")


def test_on_a_phone_everything_is_reached_and_nothing_overflows(open_tab, engine):
    chat = open_tab(viewport=PHONE, has_touch=True, is_mobile=True)
    assert chat.overflow() == 0
    engine.enqueue("A_very_long_word" * 30 + "\n\n| " + " | ".join("abcdefghij") + " |\n" + "|---" * 10 + "|")
    chat.ask("Something wide")
    assert chat.overflow() == 0
    buttons = chat.page.locator(".topbar button:visible, .composer button:visible, .tools button:visible").all()
    assert len(buttons) > 3
    for button in buttons:
        box = button.bounding_box()
        assert min(box["width"], box["height"]) >= 43, button.get_attribute("aria-label")
    # A reply with a sibling and a way on has more below it than one line holds.
    engine.enqueue("Two words")
    engine.hold()
    chat.press(chat.replies.last, "Retry")
    engine.let(5)
    expect(chat.reply()).to_have_text("Two w")
    chat.press(chat.replies.last, "Stop")
    expect(chat.replies.last.get_by_role("button", name="Continue this reply")).to_be_visible()
    assert chat.replies.last.locator(".sibling-count").bounding_box()["height"] < 30
    assert chat.overflow() == 0
    expect(chat.page.locator(".sidebar")).to_be_hidden()
    chat.page.get_by_role("button", name="Chats", exact=True).click()
    expect(chat.rows.locator("a")).to_have_text(["Something wide"])
    chat.rows.locator("a").click()
    expect(chat.page.locator(".sidebar")).to_be_hidden()
    chat.page.get_by_role("button", name="Show or hide the cache").click()
    expect(chat.page.locator("#cache-panel")).to_be_visible()
    assert chat.overflow() == 0


def test_a_conversation_by_keyboard_alone(chat, engine):
    keyboard = chat.page.keyboard
    expect(chat.field).to_be_focused()
    engine.enqueue("first")
    keyboard.type("Hello")
    keyboard.press("Enter")
    expect(chat.reply()).to_have_text("first")
    chat.wait_for_end()
    for _ in range(12):
        keyboard.press("Shift+Tab")
        if chat.page.evaluate("document.activeElement.title").startswith("Retry"):
            break
    assert chat.page.evaluate("getComputedStyle(document.activeElement).opacity") == "1"
    engine.enqueue("second")
    keyboard.press("Enter")
    expect(chat.reply()).to_have_text("second")
    keyboard.press("Control+Shift+O")
    expect(chat.page.locator(".welcome h1")).to_be_visible()
    expect(chat.field).to_be_focused()
    keyboard.press("Control+/")
    expect(chat.page.get_by_role("dialog", name="Keys")).to_be_visible()
    keyboard.press("Escape")
    expect(chat.page.get_by_role("dialog", name="Keys")).to_be_hidden()
    keyboard.press("Control+K")
    keyboard.press("ArrowDown")
    keyboard.press("Enter")
    expect(chat.reply()).to_have_text("second")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_until_somebody_chooses(open_tab, scheme):
    chat = open_tab(color_scheme=scheme)
    is_dark = "document.body.classList.contains('dark')"
    assert chat.page.evaluate(is_dark) == (scheme == "dark")
    chat.page.get_by_role("button", name="Light or dark").click()
    assert chat.page.evaluate(is_dark) == (scheme == "light")
    chat.page.reload()
    expect(chat.field).to_be_visible()
    assert chat.page.evaluate(is_dark) == (scheme == "light")


def test_html_in_a_message_is_shown_and_never_obeyed(chat, engine):
    attack = '<img src=x onerror="window.wasHurt = 1"><script>window.wasHurt = 1</script> [a](javascript:wasHurt=1)'
    engine.enqueue(attack + " $\\text{<img src=x onerror='window.wasHurt=1'>}$ ![p](http://example.org/p.png)")
    chat.ask(attack)
    for place in (chat.questions, chat.replies):
        expect(place.locator(".body")).to_contain_text('<img src=x onerror="window.wasHurt = 1">')
        expect(place.locator(".body :is(img, script, [href^=javascript])")).to_have_count(0)
    expect(chat.replies.locator('a[href="http://example.org/p.png"]')).to_have_text("p")
    assert chat.page.evaluate("window.wasHurt") is None


def test_a_long_history_comes_in_windows_and_streams_on(chat, served, engine):
    chat_id = served.service.import_chats([imported_history(500)])[0].id
    chat.open(chat_id)
    expect(chat.messages).to_have_count(40)
    expect(chat.messages.last).to_be_in_viewport()
    expect(chat.reply()).to_have_text("answer 249")
    chat.page.locator(".scroller").evaluate("(scroller) => scroller.scrollTo(0, 100)")
    expect(chat.messages).to_have_count(80)
    expect(chat.questions.first).to_have_text("question 210", use_inner_text=True)
    top = "document.querySelector('.scroller').scrollTop"
    assert chat.page.evaluate(top) > 1000, "what was being read stays where it was"
    engine.enqueue("and on")
    chat.ask("Go on")
    expect(chat.reply()).to_have_text("and on")
    expect(chat.messages.last).to_be_in_viewport()


def test_a_search_leads_deep_into_a_long_history(chat, served):
    served.service.import_chats([imported_history(500)])
    chat.page.get_by_role("searchbox").fill("question 170")
    chat.page.locator(".hit").click()
    expect(chat.questions.filter(has_text=re.compile(r"^question 170$"))).to_be_in_viewport()
