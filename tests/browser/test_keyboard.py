"""The whole page without a pointer. A conversation is in test_page, tokens in test_tokens, blocks in test_panel."""

import re

from playwright.sync_api import expect


def walk_to(page, element, key="Tab", most=60):
    """Presses the key until the element has the focus."""
    for _ in range(most):
        if element.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{key} doesn't lead to it")


def test_the_settings_take_the_focus_and_give_it_back(chat, engine, served):
    page, keyboard = chat.page, chat.page.keyboard
    opener = page.get_by_role("button", name="Settings", exact=True)
    walk_to(page, opener, "Shift+Tab")
    keyboard.press("Enter")
    drawer = page.locator("#pc-settings")
    expect(drawer.get_by_role("button", name="Close")).to_be_focused()
    temperature = drawer.get_by_role("spinbutton", name=re.compile("Temperature"))
    walk_to(page, temperature)
    options = page.locator("ul[role=listbox] [role=option]")
    expect(options).to_have_count(0)  # they were open on the way
    keyboard.press("ArrowUp")
    keyboard.press("Tab")
    expect(temperature).to_have_value("0.75")
    model = drawer.locator("#pc-model input")
    walk_to(page, model, "Shift+Tab")
    keyboard.press("ArrowDown")
    expect(options.first).to_be_visible()
    keyboard.press("Escape")  # closes the list alone
    expect(options).to_have_count(0)
    expect(drawer).to_be_visible()
    keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(opener).to_be_focused()


def test_a_chat_is_renamed_deleted_and_brought_back(chat, engine):
    page, keyboard = chat.page, chat.page.keyboard
    engine.enqueue("an answer")
    chat.ask("A question")
    walk_to(page, page.get_by_role("button", name="More for A question"), "Shift+Tab")
    keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    keyboard.press("Enter")
    title = page.get_by_role("textbox", name="Rename the chat")
    expect(title).to_be_focused()
    keyboard.type("   ")
    keyboard.press("Enter")  # a name of nothing isn't taken
    expect(title).to_be_focused()
    keyboard.press("Control+A")
    keyboard.type("Renamed")
    keyboard.press("Enter")
    expect(chat.rows).to_have_text(["Renamed"])
    walk_to(page, page.get_by_role("button", name="More for Renamed"), "Shift+Tab")
    keyboard.press("Enter")
    keyboard.press("ArrowUp")
    expect(page.get_by_role("menuitem", name="Delete")).to_be_focused()
    keyboard.press("Enter")
    expect(chat.rows).to_have_count(0)
    expect(chat.notice.get_by_role("button", name="Undo")).to_be_focused()
    keyboard.press("Enter")
    expect(chat.rows).to_have_text(["Renamed"])
    expect(chat.field).to_be_focused()


def test_a_deleted_message_is_brought_back(chat, engine):
    page, keyboard = chat.page, chat.page.keyboard
    engine.enqueue("an answer")
    chat.ask("A question")
    walk_to(page, chat.replies.get_by_role("button", name="Delete"), "Shift+Tab")
    keyboard.press("Enter")
    expect(chat.replies).to_have_count(0)
    expect(chat.notice.get_by_role("button", name="Undo")).to_be_focused()
    keyboard.press("Enter")
    expect(chat.reply()).to_have_text("an answer")


def test_one_of_several_replies_is_picked(chat, engine):
    page, keyboard = chat.page, chat.page.keyboard
    number = page.get_by_label("Replies", exact=True)
    walk_to(page, number, "Tab")
    keyboard.press("ArrowDown")
    expect(number).to_have_value("2")
    walk_to(page, chat.field, "Shift+Tab")
    engine.enqueue("one fish", "two fish")
    keyboard.type("Fish?")
    keyboard.press("Enter")
    expect(chat.replies).to_have_count(2)
    chat.wait_for_end()
    pick = page.get_by_role("button", name="Go on with this one").last
    walk_to(page, pick, "Shift+Tab")
    keyboard.press("Enter")
    expect(chat.reply()).to_have_text("two fish")
    expect(chat.replies).to_have_count(1)
    keyboard.type("Red fish?")  # wherever the focus is
    expect(chat.field).to_have_value("Red fish?")


def test_what_covers_a_narrow_page_is_closed_with_escape(open_tab):
    chat = open_tab(viewport={"width": 800, "height": 700})
    page, keyboard = chat.page, chat.page.keyboard
    chats, cache = page.get_by_role("button", name="Chats", exact=True), page.get_by_role("button", name="Show or hide")
    walk_to(page, chats, "Shift+Tab")
    keyboard.press("Enter")
    expect(page.get_by_role("button", name="Close the list")).to_be_focused()
    keyboard.press("Escape")
    expect(page.get_by_role("button", name="Close the list")).to_be_hidden()
    expect(chats).to_be_focused()
    walk_to(page, cache)
    keyboard.press("Enter")
    expect(page.get_by_role("button", name="Hide the cache", exact=True)).to_be_focused()
    keyboard.press("Escape")
    expect(cache).to_be_focused()
    keyboard.press("Control+K")
    expect(page.get_by_role("searchbox", name="Search in all chats")).to_be_focused()
