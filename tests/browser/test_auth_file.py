"""`paged-chat web --auth-file`, as people at one browser use it: in, out, and the next one in."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

import told_command
from chat_page import ChatPage, context_of, free_port


@pytest.fixture
def url(tmp_path) -> Iterator[str]:
    users = tmp_path / "users.txt"
    users.write_text("# who lives here\nann:a-secret\nbob:b:secret\n")
    port = free_port()
    command = [sys.executable, told_command.__file__, "web", "--port", str(port), "--auth-file", str(users)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            assert process.stdout is not None
            assert process.stdout.readline() == f"paged-chat is at {address} (Ctrl-C ends it)\n"
            yield address
        finally:
            process.kill()


def log_in(page: Page, name: str, password: str) -> None:
    page.get_by_label("username").fill(name)
    page.get_by_label("password").fill(password)
    page.get_by_role("button", name="Login").click()


def log_out(chat: ChatPage, name: str) -> None:
    chat.page.get_by_role("button", name=f"Log out {name}").click()
    expect(chat.page.get_by_label("password")).to_be_visible()


def test_the_next_one_at_this_browser_finds_nothing_of_the_one_before(browser, url, faults):
    faults.expected_errors += ["400", "401", "Failed to fetch"]  # the last of what a page that is left had asked for
    with context_of(browser) as context:
        page, other_tab = context.new_page(), context.new_page()
        for each in (page, other_tab):
            faults.watch(each)
        page.goto(url)
        log_in(page, "ann", "a-secret")
        chat = ChatPage(page, url)
        chat.send("Tell me of the heron")
        expect(chat.reply()).to_contain_text("A boat went")
        anns_chat = chat.chat_id
        chat.field.fill("And what I was about to ask")
        ChatPage(other_tab, url).open(anns_chat)

        log_out(chat, "ann")
        expect(other_tab.get_by_label("password")).to_be_visible()
        assert [one.url for one in context.pages] == [f"{url}/", f"{url}/"]

        log_in(page, "bob", "a-secret")
        expect(page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
        log_in(page, "bob", "b:secret")
        expect(chat.field).to_have_value("")
        expect(page.locator(".chat-list")).to_have_text("Your chats will stand here.")
        page.get_by_label("Search in all chats").fill("heron")
        expect(page.locator(".chat-list")).to_have_text("Nothing found.")
        chat.open(anns_chat)
        expect(chat.notice).to_have_text(re.compile("There is no such chat"))
        expect(chat.messages).to_have_count(0)

        log_out(chat, "bob")
        log_in(page, "ann", "a-secret")
        expect(chat.rows).to_have_count(1)
        chat.open(anns_chat)
        expect(chat.questions).to_have_text(["Tell me of the heron"])
        expect(chat.reply()).to_contain_text("A boat went")
