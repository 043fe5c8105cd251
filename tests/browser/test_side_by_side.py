"""Several replies to one question: written together, one is picked, all stay."""

from playwright.sync_api import expect

from chat_page import PHONE


def ask_for_four(chat, engine):
    engine.enqueue("one fish", "two fish", "red fish", "blue fish")
    chat.page.get_by_role("combobox", name="Replies").select_option("4")
    engine.hold()
    chat.send("Fish")
    engine.let(4)
    expect(chat.page.locator(".reply-column .body")).to_have_text(["one", "two", "red", "blue"])


def rows_of(columns):
    """How many stand beside each other in each row."""
    tops = [column.bounding_box()["y"] for column in columns.all()]
    return [tops.count(top) for top in sorted(set(tops))]


def test_four_replies_stream_in_columns_and_one_is_picked(chat, engine):
    ask_for_four(chat, engine)
    columns = chat.page.locator(".reply-column")
    engine.go()
    expect(columns.locator(".body")).to_have_text(["one fish", "two fish", "red fish", "blue fish"])
    chat.wait_for_end()
    assert rows_of(columns) == [2, 2], "beside both sides there is room for three, and two rows are as full"
    chat.page.get_by_role("button", name="Hide the cache", exact=True).click()
    assert rows_of(columns) == [4]
    chat.page.set_viewport_size({"width": 760, "height": 900})
    assert rows_of(columns) == [2, 2]
    for element in (chat.page.locator(".column-row"), chat.page.locator(".scroller")):
        assert element.evaluate("element => element.scrollWidth - element.clientWidth") == 0
    columns.nth(2).get_by_role("button", name="Go on with this one").click()
    expect(columns).to_have_count(0)
    expect(chat.reply()).to_have_text("red fish")
    expect(chat.replies.locator(".sibling-count")).to_have_text("3 / 4")
    engine.enqueue("yes")
    chat.page.get_by_role("combobox", name="Replies").select_option("1")
    chat.ask("Red?")
    expect(chat.replies.locator(".body")).to_have_text(["red fish", "yes"])


def test_on_a_phone_the_columns_are_tabs(open_tab, engine):
    chat = open_tab(viewport=PHONE)
    ask_for_four(chat, engine)
    engine.go()
    chat.wait_for_end()
    shown = chat.page.locator(".reply-column .body:visible")
    expect(shown).to_have_text(["one fish"])
    chat.page.get_by_role("tab", name="Reply 4").click()
    expect(shown).to_have_text(["blue fish"])
    assert chat.overflow() == 0


def test_the_columns_are_there_again_after_a_reload_until_one_is_picked(chat, engine):
    ask_for_four(chat, engine)
    chat.page.reload()
    engine.go()
    columns = chat.page.locator(".reply-column")
    expect(columns.locator(".body")).to_have_text(["one fish", "two fish", "red fish", "blue fish"])
    columns.nth(0).get_by_role("button", name="Go on with this one").click()
    chat.page.reload()
    expect(chat.reply()).to_have_text("one fish")
    expect(columns).to_have_count(0)
