"""Our JSON: what is written comes back equal; what isn't ours is refused with its place."""

import itertools
import json
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chat_samples
from paged_chat.app.chats import MessageTree
from paged_chat.app.porting import write_json

TREE = MessageTree(
    [
        chat_samples.message(1, None, "three days, no museums"),
        chat_samples.reply(2, 1, "Day one: Alfama 👩‍👩‍👧"),
        chat_samples.reply(4, 1, "Belém first", status="stopped", finish_reason="abort"),
        chat_samples.message(5, 2, "and the second?"),
        chat_samples.reply(9, 5, "", token_ids=(), cost=None, status="failed", error="the model ran out of memory"),
    ]
)
CHAT = chat_samples.chat(TREE, tags=("travel",), system_prompt="Be brief.", has_own_title=True, active_leaf_id=9)


def written(*chats):
    out = StringIO()
    write_json(chats, out)
    return out.getvalue()


def record(**changes):
    """The file of CHAT, with something changed in its chat."""
    document = json.loads(written((CHAT, TREE)))
    document["chats"][0] |= changes
    return json.dumps(document)


def message_record(index, **changes):
    """The file of CHAT, with something changed in a message; None takes a field away."""
    document = json.loads(written((CHAT, TREE)))
    message = document["chats"][0]["messages"][index] | changes
    document["chats"][0]["messages"][index] = {name: value for name, value in message.items() if value is not None}
    return json.dumps(document)


@settings(deadline=None, max_examples=40)
@given(st.lists(chat_samples.chats(), max_size=3))
def test_any_chats_come_back_equal(read, chats):
    assert read(written(*chats)).chats == tuple(chat_samples.imported(*chat) for chat in chats)


def test_the_file_has_a_version_and_a_line_for_each_chat():
    lines = written((CHAT, TREE), (CHAT, TREE)).splitlines()
    assert lines[0].startswith('{"format": "paged-chat", "version": 1, "exported_at": "20')
    assert len(lines) == 4
    first = json.loads(lines[1].removesuffix(","))
    assert (first["title"], first["active"], first["created_at"]) == (
        "Trip to Lisbon",
        9,
        "2026-11-29T12:00:00.250000Z",
    )
    assert [(m["id"], m["parent"], m["role"]) for m in first["messages"]] == [
        (1, None, "user"),
        (2, 1, "assistant"),
        (4, 1, "assistant"),
        (5, 2, "user"),
        (9, 5, "assistant"),
    ]


def test_whose_the_chat_is_stays_here():
    assert "somebody" not in written((chat_samples.chat(TREE, user="somebody"), TREE))


def test_no_chats_are_a_file_too(read):
    assert read(written()).chats == ()


def test_a_file_whose_keys_another_program_sorted_is_read(read):
    content = json.dumps(json.loads(written((CHAT, TREE))), sort_keys=True, indent=2)
    assert content.index('"chats"') < content.index('"version"')
    assert read(content).chats == (chat_samples.imported(CHAT, TREE),)


def test_times_of_other_zones_become_utc(read):
    [chat] = read(record(created_at="2026-11-29T17:30:00.25+05:30")).chats
    assert (chat.created_at, chat.created_at.utcoffset()) == (chat_samples.NOON, chat_samples.NOON.utcoffset())


def test_half_a_surrogate_pair_becomes_the_sign_for_it(read):
    [chat] = read(record(title="\ud83d half, \ud83d\ude00 whole")).chats
    assert chat.title == "\ufffd half, 😀 whole"


@pytest.mark.parametrize("sort_keys", [False, True])
def test_a_newer_version_is_refused_whatever_is_in_it(fault, sort_keys):
    content = json.dumps({"format": "paged-chat", "version": 2, "chats": [{"hologram": 1}]}, sort_keys=sort_keys)
    assert fault(content) == (
        "f: version is 2, from a newer paged-chat; this one reads version 1: update it, then import again"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (record(title=5), "f: chats[0].title must be text, not 5"),
        (record(tags=["a", 1]), "f: chats[0].tags[1] must be text, not 1"),
        (record(is_pinned=0), "f: chats[0].is_pinned must be true or false, not 0"),
        (record(active=7), "f: chats[0].active names message 7, which isn't in the chat"),
        (
            record(created_at="yesterday"),
            'f: chats[0].created_at must be a time such as 2026-11-29T08:30:00Z, not "yesterday"',
        ),
        (
            record(created_at="2026-11-29T08:30:00"),
            'f: chats[0].created_at must have a time zone: "2026-11-29T08:30:00"',
        ),
        (
            record(created_at="0001-01-01T00:00:00+23:59"),
            'f: chats[0].created_at must be a time such as 2026-11-29T08:30:00Z, not "0001-01-01T00:00:00+23:59"',
        ),
        (
            record(sampling={"temperature": -1}),
            "f: chats[0].sampling can't be used: temperature must be at least 0 and at most 100, not -1",
        ),
        (record(sampling={"heat": 1}), "f: chats[0].sampling.heat is a field that this version doesn't know"),
        (record(sampling={"stop": ["\n", 1]}), "f: chats[0].sampling.stop[1] must be text, not 1"),
        (record(messages={}), "f: chats[0].messages must be a list, not an object"),
        (record(messages=[1]), "f: chats[0].messages[0] must be an object, not 1"),
        (record(mood="good"), "f: chats[0].mood is a field that this version doesn't know"),
        (message_record(3, role="robot"), 'f: chats[0].messages[3].role must be "user" or "assistant", not "robot"'),
        (message_record(3, role=None), "f: chats[0].messages[3].role is missing"),
        (message_record(3, text=None), "f: chats[0].messages[3].text is missing"),
        (message_record(3, tex="x"), "f: chats[0].messages[3].tex is a field that this version doesn't know"),
        (message_record(3, id=1), "f: chats[0].messages[3].id is 1, as is that of messages[0]"),
        (
            message_record(3, id=True),
            f"f: chats[0].messages[3].id must be a whole number from 0 to {2**63 - 1}, not true",
        ),
        (
            message_record(3, parent=77),
            "f: chats[0].messages[3].parent names message 77, which doesn't stand before this one",
        ),
        (
            message_record(3, parent=5),
            "f: chats[0].messages[3].parent names message 5, which doesn't stand before this one",
        ),
        (
            message_record(1, parent=9),
            "f: chats[0].messages[1].parent names message 9, which doesn't stand before this one",
        ),
        (message_record(1, token_ids=[1, -2]), "f: chats[0].messages[1].token_ids[1] must be a token id, not -2"),
        (
            message_record(1, token_ids=[2**31]),
            "f: chats[0].messages[1].token_ids[0] must be a token id, not 2147483648",
        ),
        (
            message_record(1, cost={"num_cached_tokens": 1.5}),
            f"f: chats[0].messages[1].cost.num_cached_tokens must be a whole number from 0 to {2**40}, not 1.5",
        ),
        (
            message_record(
                1, cost={"num_cached_tokens": 1, "num_computed_tokens": 1, "num_generated_tokens": 1, "ttft_ms": "5"}
            ),
            'f: chats[0].messages[1].cost.ttft_ms must be a number, not "5"',
        ),
        (
            message_record(1, sampling={"seed": 1, "n": 10**400}),
            "f: chats[0].messages[1].sampling can't be used: n must be a whole number from 1 to 256, "
            "not one of more than 30 digits",
        ),
    ],
    ids=itertools.count(),  # the files tell the time, and all processes must know a case by one name
)
def test_a_fault_is_named_with_its_place(fault, content, expected):
    assert fault(content) == expected


def test_a_number_that_json_takes_for_infinite_is_refused(fault):
    content = message_record(
        1, cost={"num_cached_tokens": 1, "num_computed_tokens": 1, "num_generated_tokens": 1, "ttft_ms": 0.125}
    ).replace("0.125", "1e999")
    assert fault(content) == "f: chats[0].messages[1].cost.ttft_ms must be a number, not Infinity"


def test_a_temperature_that_no_float_holds_is_refused(fault):
    assert fault(record(sampling={"temperature": 10**400})).startswith("f: chats[0].sampling can't be used: ")


@pytest.mark.parametrize("cut_at", range(1, 2000, 61))
def test_a_cut_file_is_refused(fault, cut_at):
    content = written((CHAT, TREE))
    assert fault(content[: -cut_at - 2]).startswith("f: line ")


def test_something_after_the_end_is_refused(fault):
    assert fault(written((CHAT, TREE)) + "{}").startswith("f: line 4, column 1: Extra data")
