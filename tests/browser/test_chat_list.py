"""The list of chats: found, named, pinned, put away, brought back."""

import json
import re
from datetime import UTC, datetime, timedelta

from playwright.sync_api import expect

from paged_chat.app.imported_chat import ImportedChat


def begin(chat, engine, question, answer):
    chat.page.get_by_role("button", name="+ New chat").click()
    engine.enqueue(answer)
    chat.ask(question)


def test_a_chat_is_renamed_and_pinned(chat, engine):
    begin(chat, engine, "museums", "a1")
    begin(chat, engine, "trams", "a2")
    expect(chat.rows.locator("a")).to_have_text(["trams", "museums"])
    chat.field.hover()
    assert chat.page.locator(".chat-list").evaluate("list => list.scrollWidth - list.clientWidth") == 0
    chat.choose(chat.rows.nth(1), "Pin")
    expect(chat.page.locator(".chat-list h3")).to_have_text(["Pinned", "Today"])
    expect(chat.rows.locator("a")).to_have_text(["museums", "trams"])
    chat.choose(chat.rows.nth(1), "Rename")
    title = chat.page.get_by_role("textbox", name="Rename the chat")
    title.fill("Trams of <b>Lisbon</b>")
    title.press("Enter")
    expect(chat.rows.locator("a")).to_have_text(["museums", "Trams of <b>Lisbon</b>"])
    expect(chat.page.locator(".title")).to_have_text("Trams of <b>Lisbon</b>")


def test_chats_stand_under_their_days_after_the_pinned_ones(chat, served):
    now = datetime.now().replace(hour=12, minute=0, second=0)  # no hour of which another day's is near
    moments = {"now": now} | {f"{days} days ago": now - timedelta(days=days) for days in (1, 3, 10)}
    moments["long ago"] = datetime(2024, 2, 29, 12)
    chats = [
        ImportedChat(title=title, messages=(), active_leaf=None, created_at=moment, updated_at=moment)
        for title, moment in ((title, moment.astimezone(UTC)) for title, moment in moments.items())
    ]
    ids = {one.title: one.id for one in served.service.import_chats(chats)}
    headings = chat.page.locator(".chat-list h3")
    expect(headings).to_have_text(["Today", "Yesterday", "Last 7 days", "Last 30 days", "February 2024"])
    expect(chat.rows.locator("a")).to_have_text(["now", "1 days ago", "3 days ago", "10 days ago", "long ago"])
    served.service.update_chat(ids["long ago"], is_pinned=True)
    expect(headings).to_have_text(["Pinned", "Today", "Yesterday", "Last 7 days", "Last 30 days"])
    chat.choose(chat.rows.first, "Unpin")
    expect(headings.last).to_have_text("February 2024")


def test_a_deleted_chat_comes_back_with_undo(chat, engine):
    begin(chat, engine, "museums", "keep me")
    chat.choose(chat.rows.first, "Delete")
    expect(chat.rows).to_have_count(0)
    expect(chat.page.locator(".welcome h1")).to_be_visible()
    chat.notice.get_by_role("button", name="Undo").click()
    expect(chat.rows.locator("a")).to_have_text(["museums"])
    expect(chat.reply()).to_have_text("keep me")


def test_an_archived_chat_is_in_the_archive(chat, engine):
    begin(chat, engine, "museums", "a1")
    chat.choose(chat.rows.first, "Archive")
    expect(chat.rows).to_have_count(0)
    more = chat.page.get_by_role("button", name="Import, export, archive")
    mark = chat.page.locator(".chat-mark")
    expect(mark).to_have_text("archived")
    more.click()
    chat.page.get_by_role("menuitem", name="Show the archive").click()
    expect(chat.rows.locator("a")).to_have_text(["museums"])
    chat.choose(chat.rows.first, "Take out of the archive")
    expect(chat.rows).to_have_count(0)
    expect(mark).to_be_hidden()
    chat.page.get_by_role("button", name="← Chats").click()
    expect(chat.rows.locator("a")).to_have_text(["museums"])


def test_a_search_shows_what_it_found_and_leads_there(chat, engine):
    far = "and so on\n\n" * 60
    begin(chat, engine, "where is the ferry", f"{far}At Cais do Sodré, <i>every</i> quarter of an hour.\n\n{far}")
    begin(chat, engine, "something else", "a2")
    chat.page.keyboard.press("Control+K")
    search = chat.page.get_by_role("searchbox", name="Search in all chats")
    expect(search).to_be_focused()
    search.fill("sodré")
    hit = chat.page.locator(".hit")
    expect(hit).to_have_count(1)
    expect(hit.locator("mark")).to_have_text("Sodré")
    expect(hit).to_contain_text("<i>every</i>")
    search.press("ArrowDown")
    chat.page.keyboard.press("Enter")
    place = chat.reply().get_by_text("Cais do Sodré")
    expect(place).to_be_in_viewport()
    assert chat.page.evaluate("[...CSS.highlights.get('pc-found')].map(String)") == ["Sodré"]
    search.fill('nothing "such')
    expect(chat.page.locator(".chat-list h3")).to_have_text("Nothing found.")
    search.press("Escape")
    expect(chat.rows).to_have_count(2)


def test_a_found_message_on_another_branch_is_shown(chat, engine):
    begin(chat, engine, "Try", "the first one")
    engine.enqueue("the second one")
    chat.press(chat.replies.last, "Retry")
    expect(chat.reply()).to_have_text("the second one")
    chat.wait_for_end()
    chat.page.get_by_role("searchbox").fill("first one")
    chat.page.locator(".hit").click()
    expect(chat.reply()).to_have_text("the first one")


def test_a_chat_is_exported_and_imported(chat, engine, tmp_path):
    begin(chat, engine, "museums", "no museums")
    chat.rows.first.hover()
    with chat.page.expect_download() as download:
        chat.choose(chat.rows.first, "Export as JSON")
    assert download.value.suggested_filename == "museums.json"
    path = tmp_path / "museums.json"
    download.value.save_as(path)
    assert json.loads(path.read_text())["format"] == "paged-chat"
    chat.choose(chat.rows.first, "Delete")
    chat.page.locator(".sidebar-foot input[type=file]").set_input_files(path)
    expect(chat.notice.last).to_contain_text("1 chat imported from museums.json")
    expect(chat.reply()).to_have_text("no museums")


def test_a_damaged_file_is_refused_with_the_place(chat, faults, tmp_path):
    faults.expected_errors.append("409")
    path = tmp_path / "broken.json"
    path.write_text('{"format": "paged-chat", "version": 1, "chats": [{"title": 3}]}')
    chat.page.locator(".sidebar-foot input[type=file]").set_input_files(path)
    expect(chat.notice).to_have_text(re.compile(r"broken\.json.*chats\[0\]"))
    expect(chat.rows).to_have_count(0)


def test_a_temporary_chat_can_be_kept(chat, engine, served):
    chat.page.get_by_role("button", name=re.compile("^Temporary chat")).click()
    engine.enqueue("an answer")
    chat.ask("A secret")
    before = chat.chat_id
    chat.page.get_by_role("button", name="Keep this chat").click()
    expect(chat.notice).to_contain_text("The chat is kept.")
    expect(chat.page.locator(".chat-mark")).to_be_hidden()
    expect(chat.reply()).to_have_text("an answer")
    assert chat.chat_id != before
    assert [kept.id for kept in served.store.chats()] == [chat.chat_id]
    expect(chat.rows).to_have_count(1)


def test_a_temporary_chat_is_never_stored(chat, engine, served):
    chat.page.get_by_role("button", name=re.compile("^Temporary chat")).click()
    expect(chat.page.locator(".chat-mark")).to_have_text("temporary")
    engine.enqueue("not written down")
    chat.ask("A secret")
    assert served.service.chat(chat.chat_id).is_temporary
    assert served.store.chats() == []
    chat.page.reload()
    expect(chat.reply()).to_have_text("not written down")


def test_the_address_names_the_chat_and_back_goes_back(chat, engine):
    begin(chat, engine, "museums", "a1")
    first = chat.chat_id
    begin(chat, engine, "trams", "a2")
    chat.page.go_back()  # to the empty page
    chat.page.go_back()
    expect(chat.reply()).to_have_text("a1")
    assert chat.chat_id == first


def test_an_address_of_no_chat_says_so(open_tab):
    chat = open_tab("0" * 32)
    expect(chat.notice).to_have_text(re.compile("There is no such chat"))
    expect(chat.page.locator(".welcome h1")).to_be_visible()
