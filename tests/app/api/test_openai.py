"""OpenAI's API as its clients see it: raw HTTP, shapes compared whole."""

import base64
import http.client
import json
import re
from pathlib import Path

import pytest

from chat_desk import until
from engine_server import MODEL, serve_engine
from paged_chat.engine.errors import ModelNotFound
from patience import PATIENCE_S

HELLO = [{"role": "user", "content": "hello"}]
DETAILS = {"reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}


class Client:
    """A program that knows the address and nothing else."""

    def __init__(self, address, key=None):
        self.address, self.headers = address, {} if key is None else {"Authorization": key}

    def open(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **self.headers, **headers}
        connection.request(method, f"/v1{path}", content, given)
        return connection, connection.getresponse()

    def __call__(self, method, path, body=None, **headers):
        connection, answer = self.open(method, path, body, **headers)
        status, content = answer.status, json.loads(answer.read())
        connection.close()
        return status, content

    def chat(self, **body):
        return self("POST", "/chat/completions", {"model": MODEL, "messages": HELLO, **body})

    def stream(self, path="/chat/completions", **body):
        """The chunks of a stream; checks how it is framed."""
        connection, answer = self.open("POST", path, {"model": MODEL, "stream": True, **body})
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        events = answer.read().decode().split("\n\n")
        connection.close()
        assert events[-1] == ""
        assert all(event.startswith("data: ") for event in events[:-1])
        assert events[-2] == "data: [DONE]"
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


@pytest.fixture
def client(server):
    return Client(server.address)


def test_a_chat_completion_has_the_very_shape(fake, client):
    fake.enqueue("good day")
    status, answer = client.chat()
    assert status == 200
    assert answer.pop("id").startswith("chatcmpl-")
    assert isinstance(answer.pop("created"), int)
    assert answer.pop("system_fingerprint").startswith("paged-chat-")
    num_prompt = len(fake.models[0].submitted[0][0])
    assert answer == {
        "object": "chat.completion",
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "good day", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": num_prompt,
            "completion_tokens": 9,
            "total_tokens": num_prompt + 9,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": DETAILS,
        },
    }


def test_the_documented_program_prints_the_reply(fake, server, capsys):
    page = Path(__file__).parents[3] / "docs" / "serve.md"
    [program] = re.findall(r"^From Python.*?^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    fake.enqueue("red, green, blue")
    exec(program.replace("127.0.0.1:7861", server.address).replace("smollm2-135m", MODEL), {})
    assert capsys.readouterr().out == "red, green, blue"


def test_the_second_time_all_but_the_last_token_is_cached(fake, client):
    first, second = (client.chat()[1]["usage"] for _ in range(2))
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] == second["prompt_tokens"] - 1


def test_a_chat_that_goes_on_finds_its_own_reply_though_it_came_back_as_text(fake, client):
    # "he" is a token of its own, but this reply was drawn as "h" and "e".
    fake.scripts.add(type("Script", (), {"samples": ([107, 104, 2],), "error": None}))
    _, first = client.chat()
    reply = first["choices"][0]["message"]["content"]
    assert reply == "he"
    _, second = client.chat(messages=[*HELLO, {"role": "assistant", "content": reply}, *HELLO])
    usage = first["usage"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == usage["total_tokens"] - 1


def test_several_replies_are_choices_and_their_prompt_is_computed_once(fake, client):
    fake.enqueue("one", "three", "four")
    _, answer = client.chat(n=3, seed=7)
    assert [(c["index"], c["message"]["content"]) for c in answer["choices"]] == [(0, "one"), (1, "three"), (2, "four")]
    assert answer["usage"]["completion_tokens"] == 4 + 6 + 5
    _, params, salt = fake.models[0].submitted[0]
    assert (params.n, params.seed, params.temperature, params.max_tokens, salt) == (3, 7, 1.0, None, "")


def test_stop_texts_and_limits_end_a_reply(fake, client):
    fake.enqueue("one two three")
    [choice] = client.chat(stop=[" three", "x"])[1]["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one two", "stop")
    fake.enqueue("one two three")
    [choice] = client.chat(max_completion_tokens=3, max_tokens=99)[1]["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one", "length")


def test_log_probabilities_name_each_token_but_the_end(fake, client):
    fake.enqueue("ab")
    [choice] = client.chat(logprobs=True, top_logprobs=2)[1]["choices"]
    content = choice["logprobs"]["content"]
    assert [one["token"] for one in content] == ["a", "b"]
    assert fake.models[0].submitted[0][1].logprobs == 2
    assert {tuple(one) for one in content} == {("token", "logprob", "bytes", "top_logprobs")}
    assert {tuple(top) for one in content for top in one["top_logprobs"]} == {("token", "logprob", "bytes")}
    assert choice["logprobs"]["refusal"] is None
    assert [one["bytes"] for one in content] == [[97], [98]]


def test_a_stream_opens_grows_and_ends_each_choice(fake, client):
    fake.enqueue("good day", "hi")
    chunks = client.stream(messages=HELLO, n=2)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)
    for index, text in enumerate(["good day", "hi"]):
        mine = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert "".join(choice["delta"].get("content", "") for choice in mine) == text
        assert mine[-1] == {"index": index, "delta": {}, "logprobs": None, "finish_reason": "stop"}
        assert all(choice["finish_reason"] is None for choice in mine[:-1])


def test_a_stream_tells_its_usage_where_that_is_wanted(fake, client):
    chunks = client.stream(messages=HELLO, stream_options={"include_usage": True})
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 0, "audio_tokens": 0}


def test_whoever_leaves_a_stream_or_an_answer_ends_the_computing(fake, client):
    for stream in (True, False):
        fake.hold()
        fake.enqueue("a very long reply that nobody reads to its end")
        body = {"model": MODEL, "messages": HELLO, "stream": stream}
        connection = http.client.HTTPConnection(client.address, timeout=PATIENCE_S)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        until(lambda: fake.models and fake.models[0].has_unfinished)
        if stream:
            answer = connection.getresponse()
            fake.let(2)
            answer.readline()
            answer.close()
        connection.close()
        until(lambda: not fake.models[0].has_unfinished)
        fake.go()


def test_a_failure_in_mid_stream_is_an_event_and_the_last(fake, client):
    fake.enqueue_failure("one two", "the memory is full")
    connection, answer = client.open("POST", "/chat/completions", {"model": MODEL, "messages": HELLO, "stream": True})
    *_, last = answer.read().decode().strip().split("\n\n")
    connection.close()
    error = json.loads(last.removeprefix("data: "))["error"]
    assert (error["type"], error["code"]) == ("server_error", "engine_failed")
    assert "the memory is full" in error["message"]


# Completions


def test_completions_take_texts_and_ids_one_or_many(fake, client):
    for prompt, num_prompts in (("hello", 1), (["hello", "day"], 2), ([5, 6, 7], 1), ([[5, 6], [7]], 2)):
        for _ in range(num_prompts):
            fake.enqueue("yes", "no")
        status, answer = client("POST", "/completions", {"model": MODEL, "prompt": prompt, "n": 2})
        assert status == 200
        assert answer["object"] == "text_completion"
        assert answer["id"].startswith("cmpl-")
        assert [tuple(choice) for choice in answer["choices"]] == [("index", "text", "logprobs", "finish_reason")] * (
            2 * num_prompts
        )
        assert [(c["index"], c["text"]) for c in answer["choices"]] == [
            (i, "no" if i % 2 else "yes") for i in range(2 * num_prompts)
        ]
    assert fake.models[0].submitted[3][0] == [5, 6, 7]
    assert fake.models[0].submitted[0][1].max_tokens == 16


def test_completions_have_log_probabilities_of_their_own_shape_and_stream(fake, client):
    fake.enqueue("abc")
    body = {"model": MODEL, "prompt": "x", "logprobs": 1}
    [choice] = client("POST", "/completions", body)[1]["choices"]
    logprobs = choice["logprobs"]
    assert set(logprobs) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert [len(values) for values in logprobs.values()] == [3, 3, 3, 3]
    fake.enqueue("abc")
    chunks = client.stream("/completions", prompt="x")
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "abc"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


# Models


def test_the_one_model_is_listed_and_found(client):
    model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "paged-chat"}
    assert client("GET", "/models") == (200, {"object": "list", "data": [model]})
    assert client("GET", f"/models/{MODEL}") == (200, model)
    status, answer = client("GET", "/models/gpt-5")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")


# Refusals


@pytest.mark.parametrize(
    ("body", "status", "param", "code", "words"),
    [
        ({"model": "gpt-5"}, 404, "model", "model_not_found", "there is no model 'gpt-5' here"),
        ({"colour": 1}, 400, None, None, "Unrecognized request argument supplied: colour"),
        ({"messages": []}, 400, "messages", "invalid_type", "at least 1 item"),
        ({"messages": [{"role": "king", "content": "x"}]}, 400, "messages.0.role", "invalid_type", "'system'"),
        ({"temperature": "hot"}, 400, "temperature", "invalid_type", "valid number"),
        ({"temperature": -1}, 400, "temperature", "invalid_value", "at least 0"),
        ({"n": 0}, 400, "n", "invalid_value", "n must be a whole number from 1"),
        ({"n": 65}, 400, "n", "invalid_value", "at most 64 replies"),
        ({"top_logprobs": 3}, 400, "top_logprobs", "invalid_value", "needs logprobs"),
        ({"stream_options": {}}, 400, "stream_options", "invalid_value", "needs stream"),
        ({"tools": [{"type": "function"}]}, 400, "tools", "unsupported_parameter", "Unsupported parameter: 'tools'"),
        ({"logit_bias": {"5": 1}}, 400, "logit_bias", "unsupported_parameter", "logit_bias"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format", "unsupported_parameter", "response"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            400, "messages.0.content", "unsupported_content", "reads text only, no image_url",
        ),
        (
            {"messages": [{"role": "user", "content": "x" * 5000}]},
            400, "messages", "context_length_exceeded", "window holds 4,096",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_in_their_form(client, body, status, param, code, words):
    got, answer = client.chat(**body)
    assert got == status
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert words in error["message"]


def test_what_only_concerns_a_hosted_service_is_ignored_and_null_is_the_default(fake, client):
    ignored = {"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "parallel_tool_calls": True}
    nothing = dict.fromkeys(["temperature", "top_p", "n", "stop", "seed", "max_tokens", "tools", "logit_bias"])
    status, _ = client.chat(**ignored, **nothing, response_format={"type": "text"}, tool_choice="none")
    assert status == 200
    assert fake.models[0].submitted[0][1].temperature == 1.0


def test_texts_in_parts_and_the_developers_role_are_understood(fake, client):
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    client.chat(messages=[{"role": "developer", "content": "Be brief"}, {"role": "user", "content": parts}])
    [prompt] = fake.models[0].prompts()
    assert prompt == "<s>system:Be brief</s>user:hello</s>assistant:"


def test_bodies_that_are_no_request_and_paths_that_are_none(client):
    assert client("POST", "/chat/completions", b"{")[1]["error"]["message"] == (
        "the body of the request can't be read as JSON"
    )
    assert client("POST", "/chat/completions", b"[]")[0] == 400
    status, answer = client("POST", "/chat/completions", {"messages": HELLO})
    assert (status, answer["error"]["message"]) == (400, "Missing required parameter: 'model'.")
    status, answer = client("GET", "/embeddings")
    assert (status, answer["error"]["code"]) == (404, "unknown_url")
    assert client("GET", "/chat/completions")[0] == 405


def test_other_sites_and_other_names_are_kept_out(client):
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        connection, answer = client.open("POST", "/chat/completions", {"model": MODEL, "messages": HELLO}, **headers)
        assert answer.status == 403
        connection.close()


def test_with_accounts_the_key_is_name_and_password_and_nobody_shares_blocks(fake):
    server = serve_engine(fake.open, accounts={"ann": "a:secret", "bob": "b"})
    status, answer = Client(server.address).chat()
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    assert Client(server.address, "Bearer ann:wrong").chat()[0] == 401
    assert Client(server.address, "Bearer ann:wrong")("GET", "/models")[0] == 401
    basic = "Basic " + base64.b64encode(b"bob:b").decode()
    for key in ("Bearer ann:a:secret", basic):
        status, answer = Client(server.address, key).chat()
        assert status == 200
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert [salt for _, _, salt in fake.models[0].submitted] == ["ann", "bob"]
    server.close()


def test_a_model_that_failed_is_told_with_the_reason(fake):
    fake.load_error = ModelNotFound("no such model: take another")
    server = serve_engine(fake.open)
    status, answer = Client(server.address).chat()
    assert (status, answer["error"]["type"], answer["error"]["code"]) == (503, "server_error", "engine_unavailable")
    assert "no such model: take another" in answer["error"]["message"]
    server.close()
