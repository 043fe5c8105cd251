"""All that the page's server answers to, asked by bob about ann's chat: it is as if there were none."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.routing import APIRoute

from chat_desk import until
from page_asker import Asker
from paged_chat.app.web import comparison_routes, routes, token_routes, transfer_routes, why_routes
from patience import PATIENCE_S

ROUTES = [
    route
    for module in (comparison_routes, routes, token_routes, transfer_routes, why_routes)
    for route in module.router.routes
    if isinstance(route, APIRoute)
]
OF_A_CHAT = [
    (method, route.path) for route in ROUTES if "{chat_id}" in route.path for method in sorted(route.methods or ())
]
NO_CHAT = "0" * 32
BODY = {"text": "mine now", "title": "mine now", "variants": [{}, {}], "token_index": 0, "token_id": 1}


@dataclass(frozen=True)
class AnnsChat:
    id: str
    reply_id: int

    def asked_for(self, path: str, chat_id: str) -> str:
        path = path.format(chat_id=chat_id, message_id=self.reply_id, token_index=0, form="json")
        return f"{path}?of=retry&num_tokens=1&left={self.reply_id}&right={self.reply_id}&ids={self.reply_id}"


@pytest.fixture(scope="module")
def anns(url: str, cookies: dict[str, str]) -> AnnsChat:
    ann = Asker(url, cookies["ann"])
    chat_id = ann.new_chat()
    status, text = ann.post(f"/paged-chat/chats/{chat_id}/send", json.dumps({"text": "My secret"}))
    assert status == 200
    [reply_id] = json.loads(text)["reply_ids"]
    until(lambda: messages_of(ann, chat_id)[-1]["status"] == "done")
    return AnnsChat(chat_id, reply_id)


def messages_of(ann: Asker, chat_id: str) -> list[dict[str, Any]]:
    return exported(ann, chat_id)["messages"]


def exported(ann: Asker, chat_id: str) -> dict[str, Any]:
    [chat] = json.loads(ann("GET", f"/paged-chat/export/{chat_id}.json")[1])["chats"]
    return chat


@pytest.fixture
def unchanged(ann, anns):
    before = exported(ann, anns.id)
    yield
    assert exported(ann, anns.id) == before
    assert [message["text"] for message in before["messages"]] == ["My secret", "reply 1"]


def test_there_are_such_routes():
    assert len(OF_A_CHAT) >= 25


@pytest.mark.parametrize(("method", "path"), OF_A_CHAT)
def test_another_persons_chat_is_no_chat(anns, bob, unchanged, method, path):
    asked = [bob(method, anns.asked_for(path, chat_id), json.dumps(BODY)) for chat_id in (anns.id, NO_CHAT)]
    assert asked[0] == asked[1]
    status, text = asked[0]
    assert status == 404
    assert "My secret" not in text


@pytest.mark.parametrize(("method", "path"), OF_A_CHAT)
def test_a_stranger_is_told_nothing(anns, stranger, method, path):
    assert stranger(method, anns.asked_for(path, anns.id), json.dumps(BODY))[0] == 401


def test_a_message_of_ones_own_chat_is_not_anothers_message(anns, ann, bob, unchanged):
    """The chat is bob's, the message is ann's."""
    own = bob.new_chat()
    for method, path in OF_A_CHAT:
        if "{message_id}" in path:
            status, text = bob(method, anns.asked_for(path, own), json.dumps(BODY))
            assert status == 404 or "there is no such message" in text or text == '{"num_stopped":0}', path
            assert "My secret" not in text


def test_nobody_hears_of_another_persons_chat(anns, bob):
    with bob.socket("/paged-chat/live") as socket:
        socket.send(json.dumps({"kind": "open", "chat_id": anns.id}))
        while (news := json.loads(socket.recv(PATIENCE_S)))["kind"] != "gone":
            assert anns.id not in json.dumps(news)


# Gradio's own way to the settings


EVENTS = {"load": 1, "save_system_prompt": 2, "use_system_prompt": 2, "use_sampling": 2, "reset_sampling": 1}


@pytest.fixture(scope="module")
def preset(url, cookies) -> str:
    """One of bob's, which he would like to see in ann's chat."""
    bob = Asker(url, cookies["bob"])
    assert bob.post("/gradio_api/run/keep_system_prompt", json.dumps({"data": ["a preset", "mine now"]}))[0] == 200
    return "a preset"


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("way", ["run/{}", "run/predict"])
def test_the_settings_of_another_persons_chat_are_nobodys(anns, ann, bob, stranger, unchanged, preset, event, way):
    config = json.loads(ann("GET", "/config")[1])
    [number] = [each["id"] for each in config["dependencies"] if each["api_name"] == event]
    data = [anns.id, preset][: EVENTS[event]]
    body = json.dumps({"data": data, "fn_index": number, "session_hash": "bobs"})
    status, text = bob.post(f"/gradio_api/{way.format(event)}", body)
    assert (status, json.loads(text)["error"].split(",")[0]) == (500, "there is no such chat")
    assert stranger.post(f"/gradio_api/{way.format(event)}", body)[0] == 401


@pytest.mark.parametrize("event", ["drop_system_prompt", "drop_sampling", "keep_system_prompt", "use_system_prompt"])
@pytest.mark.parametrize("name", [None, 7, ["a"], {"a": 1}, True, "\ud800", "\0", "a" * 100_000])
def test_what_is_no_name_of_a_preset_is_taken_as_a_name_or_refused_in_words(bob, event, name):
    data = {"drop_system_prompt": [name], "keep_system_prompt": [name or "nameless", name]}.get(event, [name, name])
    status, text = bob.post(f"/gradio_api/run/{event}", json.dumps({"data": data}))
    assert status == 200 or json.loads(text)["error"], "a fault of ours has no words"
