"""People with accounts: each sees their own chats and nothing of the others'."""

import re

import pytest
from playwright.sync_api import expect

from chat_page import ChatPage, context_of
from paged_chat.app.api.login_limit import MAX_FAILURES


def log_in(page, url, name, password):
    page.goto(url)
    expect(page.get_by_text("paged-chat: everyone here has their own chats.")).to_be_visible()
    page.get_by_label("username").fill(name)
    page.get_by_label("password").fill(password)
    page.get_by_role("button", name="Login").click()


@pytest.fixture
def served(serve):
    return serve(accounts={"ann": "a-secret", "bob": "b-secret"})


def test_each_person_has_their_own_chats_and_salt(browser, served, faults):
    faults.expected_errors += ["401", "404"]
    with context_of(browser) as of_ann, context_of(browser) as of_bob:
        ann, bob = of_ann.new_page(), of_bob.new_page()
        for page, name in ((ann, "ann"), (bob, "bob")):
            faults.watch(page)
            log_in(page, served.url, name, f"{name[0]}-secret")
        ann_page, bob_page = ChatPage(ann, served.url), ChatPage(bob, served.url)
        served.engine.enqueue("yours")
        ann_page.ask("mine")
        served.engine.enqueue("yours too")
        bob_page.ask("mine")
        expect(bob_page.rows).to_have_count(1)
        assert {salt for _, _, salt in served.engine.models[0].submitted} == {"ann", "bob"}
        bob_page.open(ann_page.chat_id)
        expect(bob_page.notice).to_have_text(re.compile("There is no such chat"))
        answer = bob.request.post(f"{served.url}/paged-chat/chats/{ann_page.chat_id}/delete", data={})
        assert answer.status == 404
        assert len(served.service.chats(user="ann")) == 1


def test_a_login_says_what_is_wrong(browser, served, faults):
    faults.expected_errors += ["400", "401", "422", "429"]
    with context_of(browser) as context:
        page = context.new_page()
        faults.watch(page)
        told = page.get_by_role("alert")
        page.goto(served.url)
        expect(page.get_by_label("username")).to_be_focused()
        log_in(page, served.url, "", "a-secret")
        expect(told).to_have_text("Type your name and your password.")
        page.get_by_label("username").fill("ann")
        for _ in range(MAX_FAILURES):
            page.get_by_label("password").fill("wrong")
            with page.expect_response("**/login") as answer:
                page.get_by_role("button", name="Login").click()
            assert answer.value.status == 400
            expect(told).to_have_text("The name or the password is wrong.")
            expect(page.get_by_label("username")).to_have_value("ann")
            expect(page.get_by_label("password")).to_be_focused()
            expect(page.get_by_label("password")).to_have_value("")
        page.get_by_label("password").fill("a-secret")
        page.get_by_role("button", name="Login").click()
        expect(told).to_have_text(re.compile(r"^Too many wrong passwords from this address: try again in \d+ s\.$"))
        expect(page.get_by_text("Incorrect Credentials")).to_be_hidden()


def test_a_stranger_gets_nothing(browser, served, faults):
    faults.expected_errors += ["400", "401"]
    with context_of(browser) as context:
        page = context.new_page()
        faults.watch(page)
        log_in(page, served.url, "ann", "wrong")
        expect(page.get_by_label("password")).to_be_visible()
        for path in ("search?q=a", "export/all.json"):
            assert page.request.get(f"{served.url}/paged-chat/{path}").status == 401
        assert page.request.post(f"{served.url}/paged-chat/chats", data={}).status == 401
        closed = page.evaluate(
            "new Promise((done) => { new WebSocket(location.origin.replace('http', 'ws') + '/paged-chat/live')"
            ".onclose = (event) => done(event.code) })"
        )
        assert closed == 4401
        assert served.service.chats(user="ann") == []
