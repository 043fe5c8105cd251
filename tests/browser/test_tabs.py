"""Several tabs, reloads, broken lines: nothing is lost, nothing is overwritten."""

from playwright.sync_api import expect

from paged_chat.app.web import live


def test_a_reply_goes_on_while_the_page_is_reloaded(chat, engine):
    engine.enqueue("one two three four")
    engine.hold()
    chat.send("Count")
    engine.let(7)
    expect(chat.reply()).to_have_text("one two")
    chat.page.reload()
    expect(chat.reply()).to_have_text("one two")
    engine.let(6)
    expect(chat.reply()).to_have_text("one two three")
    chat.page.goto("about:blank")
    engine.go()
    chat.page.go_back()
    expect(chat.reply()).to_have_text("one two three four")
    chat.wait_for_end()


def test_a_reply_is_shown_however_long_a_piece_of_it_takes_to_make(chat, engine, monkeypatch):
    monkeypatch.setattr(live, "PAUSE_PER_WORK", 1e9)
    engine.enqueue("one two three")
    engine.hold()
    chat.send("Count")
    for num_tokens, text in ((3, "one"), (4, "one two"), (6, "one two three")):
        engine.let(num_tokens)
        expect(chat.reply()).to_have_text(text)


def test_a_reply_lands_in_its_own_chat(chat, engine):
    engine.enqueue("for the first")
    engine.hold()
    chat.send("first")
    engine.let(3)
    expect(chat.reply()).to_have_text("for")
    first = chat.chat_id
    chat.page.get_by_role("button", name="+ New chat").click()
    engine.enqueue("for the second")
    chat.send("second")
    expect(chat.questions).to_have_text(["second"], use_inner_text=True)
    expect(chat.page.locator(".chat-row.is-running")).to_have_count(2)
    engine.go()
    expect(chat.reply()).to_have_text("for the second")
    expect(chat.replies).to_have_count(1)
    chat.page.locator(f'.chat-row[data-id="{first}"] a').click()
    expect(chat.replies.locator(".body")).to_have_text(["for the first"])


def test_a_stale_tab_catches_up_and_overwrites_nothing(open_tab, engine, served):
    one = open_tab()
    engine.enqueue("root")
    one.ask("Begin")
    two = open_tab(one.chat_id)
    expect(two.reply()).to_have_text("root")
    engine.enqueue("from one")
    one.ask("Go on")
    expect(two.reply()).to_have_text("from one")
    engine.enqueue("from two")
    two.ask("And on")
    expect(one.replies.locator(".body")).to_have_text(["root", "from one", "from two"])
    assert len(served.service.tree(one.chat_id)) == 6


def test_what_is_being_written_in_a_chat_outlives_its_deletion_in_another_tab(open_tab, engine):
    one = open_tab()
    engine.enqueue("root")
    one.ask("Begin")
    two = open_tab(one.chat_id)
    expect(two.reply()).to_have_text("root")
    two.field.fill("half a thought")
    one.choose(one.rows.first, "Delete")
    expect(two.notice).to_contain_text("“Begin” was deleted in another place.")
    expect(two.replies).to_have_count(0)
    expect(two.field).to_have_value("half a thought")
    two.notice.get_by_role("button", name="Undo").click()
    expect(two.reply()).to_have_text("root")
    expect(one.rows.locator("a")).to_have_text(["Begin"])


def test_ten_tabs_stream_at_once(open_tab, engine):
    tabs = [open_tab() for _ in range(10)]
    engine.hold()
    for number, tab in enumerate(tabs):
        engine.enqueue(f"reply to tab {number}")
        tab.send(f"tab {number}")
        expect(tab.replies).to_have_count(1)
    engine.let(5)
    for tab in tabs:
        expect(tab.reply()).to_have_text("reply")
    engine.go()
    for number, tab in enumerate(tabs):
        expect(tab.reply()).to_have_text(f"reply to tab {number}")


def test_the_line_comes_back_by_itself(chat, engine, served):
    engine.enqueue("before")
    chat.ask("One")
    chat.page.evaluate("pagedChat.line.socket.close()")
    served.service.rename(chat.chat_id, "renamed meanwhile")
    expect(chat.page.locator(".title")).to_have_text("renamed meanwhile")
    expect(chat.page.locator(".pc.is-cut-off")).to_have_count(0)
