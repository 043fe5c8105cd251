"""Sampling values that no client should send, over the API: each is refused in words, and nothing is computed."""

import http.client
import itertools
import json

import pytest

from engine_server import MODEL
from patience import PATIENCE_S

HELLO = '[{"role": "user", "content": "hello"}]'


@pytest.fixture
def post(server, fake):
    def post(path, fields):
        connection = http.client.HTTPConnection(server.address, timeout=PATIENCE_S)
        body = f'{{"model": "{MODEL}", {fields}}}'
        connection.request("POST", f"/v1/{path}", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        error = json.loads(answer.read())["error"]
        connection.close()
        assert fake.models == [] or not fake.models[0].submitted
        return answer.status, error["param"], error["message"]

    return post


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (
            ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty"],
            ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "true", '"0.5"', "[0.5]", "{}"],
        ),
        (
            ["n", "max_tokens", "top_k"],
            ["-1", "2.5", "NaN", "true", '"2"', "1e400", "99999999999999999999", "[1]"],
        ),
    ],
    ids=["numbers", "counts"],
)
def test_what_a_parameter_can_not_be(post, names, values):
    answers = {
        (name, value): post("chat/completions", f'"messages": {HELLO}, "{name}": {value}')[:2]
        for name, value in itertools.product(names, values)
    }
    assert {asked: told for asked, told in answers.items() if told != (400, asked[0])} == {}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ('"stop": [""]', "stop", "stop must hold strings that aren't empty"),
        (f'"stop": {json.dumps(["a"] * 65)}', "stop", "stop must hold at most 64 strings of at most 1,000 characters"),
        (f'"stop": "{"a" * 1001}"', "stop", "stop must hold at most 64 strings of at most 1,000 characters"),
        (f'"stop_token_ids": {[1] * 10_001}', "stop_token_ids", "stop_token_ids must hold at most 10,000 ids"),
        ('"stop_token_ids": [-1]', "stop_token_ids", "stop_token_ids must be a whole number from 0"),
        ('"max_tokens": 0', "max_tokens", "max_tokens must be a whole number from 1"),
        ('"logit_bias": {"1": NaN}', "logit_bias", "Unsupported parameter"),
    ],
)
def test_what_is_too_much(post, fields, param, words):
    for path, prompt in (("chat/completions", f'"messages": {HELLO}'), ("completions", '"prompt": "a"')):
        status, named, message = post(path, f"{prompt}, {fields}")
        assert (status, named) == (400, param)
        assert message.startswith(words)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (json.dumps(["a"] * 2049), "2,049 prompts are too many for one request: send 2,048 at most"),
        ("[true, false]", "Invalid value for 'prompt'"),
        ("[1.5]", "Invalid value for 'prompt'"),
        ("[[]]", "the prompt is empty"),
        ("[-1]", "token ids must be whole numbers from 0"),
        (f"[{10**30}]", "token ids must be whole numbers from 0"),
    ],
)
def test_prompts_that_are_none(post, prompt, words):
    status, _, message = post("completions", f'"prompt": {prompt}')
    assert status == 400
    assert message.startswith(words)


def test_a_model_of_half_a_letter_is_none(post):
    """The name stands in the answer, which can't hold what UTF-8 can't."""
    status, _, message = post("completions", '"prompt": "a", "model": "\\ud800"')
    assert status == 404
    assert message.startswith(r"there is no model '\ud800' here")


def test_a_models_name_of_many_letters_is_cut_in_the_answer(post):
    status, _, message = post("completions", f'"prompt": "a", "model": "{"a" * 5000}"')
    cut = f"'{'a' * 200}' and 4,800 characters more"
    assert (status, message) == (404, f"there is no model {cut} here: this server has '{MODEL}'")
