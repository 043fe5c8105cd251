"""Other programs that use the engine are known for as long as they do."""

import json
import threading
import urllib.request
from contextlib import ExitStack

from chat_desk import until
from engine_server import MODEL
from paged_chat.app.service.engine_guests import EngineGuests, Guest
from paged_chat.app.service.served_engine import model_figures
from patience import PATIENCE_S


def test_they_are_counted_by_what_they_are():
    guests = EngineGuests()
    with ExitStack() as visits:
        visits.enter_context(guests.visit(Guest.PROGRAM))
        assert guests.words == ["1 other program uses this model"]
        visits.enter_context(guests.visit(Guest.PROGRAM))
        visits.enter_context(guests.visit(Guest.REQUEST))
        assert guests.words == ["2 other programs use this model", "1 request to the API is being answered"]
    assert guests.words == []


def test_a_program_is_a_guest_until_it_goes(server, remote):
    remote.call(model_figures.ask()).result(PATIENCE_S)
    assert server.host.guests.words == ["1 other program uses this model"]
    remote.close()
    until(lambda: server.host.guests.words == [])


def test_a_request_is_a_guest_until_it_is_answered(server, fake):
    fake.enqueue("an answer")
    fake.hold()
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    request = urllib.request.Request(
        f"http://{server.address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    answers = []

    def ask():
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            answers.append(answer.read())

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: server.host.guests.words == ["1 request to the API is being answered"])
    with urllib.request.urlopen(f"http://{server.address}/v1/models", timeout=PATIENCE_S) as models:
        models.read()
    fake.go()
    asking.join(PATIENCE_S)
    assert answers[0].endswith(b"data: [DONE]\n\n")
    until(lambda: server.host.guests.words == [])
