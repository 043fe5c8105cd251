"""Lists of messages with role and content, in the shapes in which programs keep them."""

import json
from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chat_samples
from chat_samples import outline

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "three days?"},
    {"role": "assistant", "content": "Alfama."},
]


@pytest.mark.parametrize(
    ("content", "titles"),
    [
        (json.dumps(TALK), ["three days?"]),
        (json.dumps({"messages": TALK}, indent=1), ["three days?"]),
        (json.dumps({"messages": TALK, "title": "Lisbon"}), ["Lisbon"]),
        (json.dumps([TALK, TALK]), ["three days?"] * 2),
        (json.dumps([{"messages": TALK}, {"title": "Lisbon", "messages": TALK}]), ["three days?", "Lisbon"]),
        (f"{json.dumps({'messages': TALK})}\n\n{json.dumps({'messages': TALK})}\n", ["three days?"] * 2),
    ],
)
def test_every_shape_gives_the_same_chats(read, content, titles):
    chats = read(content).chats
    assert [chat.title for chat in chats] == titles
    assert [chat.has_own_title for chat in chats] == [title == "Lisbon" for title in titles]
    for chat in chats:
        assert chat.system_prompt == "Be brief."
        assert outline(chat) == [(None, "user", "three days?"), (0, "assistant", "Alfama.")]
        assert chat.active_leaf == 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("user", "assistant")), chat_samples.any_text), min_size=1))
def test_any_texts_come_back(read, turns):
    [chat] = read(json.dumps([{"role": role, "content": text} for role, text in turns])).chats
    assert [(message.role, message.text) for message in chat.messages] == turns
    assert [message.parent for message in chat.messages] == [None, *range(len(turns) - 1)]


def test_the_chat_is_made_now(read):
    before = datetime.now(UTC)
    [chat] = read(json.dumps(TALK)).chats
    assert before <= chat.created_at == chat.updated_at == chat.messages[0].created_at <= datetime.now(UTC)


def test_parts_tools_and_late_system_messages(read):
    image = {"type": "image_url", "image_url": {"url": "data:…"}}
    read_chats = read(
        json.dumps(
            [
                {"role": "developer", "content": "Be brief."},
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "what is this?"}, image]},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
                {"role": "tool", "content": "a tram", "tool_call_id": "1"},
                {"role": "system", "content": "The date is today."},
                {"role": "assistant", "content": "A tram."},
            ]
        )
    )
    [chat] = read_chats.chats
    assert chat.system_prompt == "Be brief.\n\nBe kind."
    assert outline(chat) == [(None, "user", "what is this?\n[image]"), (0, "assistant", "A tram.")]
    assert read_chats.left_out == Counter({"tool messages": 2, "images": 1, "system messages": 1})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([TALK[0], {"role": "robot", "content": "x"}],
         'f: [1].role must be "user" or "assistant" or "system" or "developer" or "tool" or "function", not "robot"'),
        ([TALK[0], {"role": "user"}], "f: [1].content is missing"),
        ([TALK[0], {"role": "user", "content": 5}], "f: [1].content must be a list, not 5"),
        ([TALK[0], {"role": "user", "content": [5]}], "f: [1].content[0] must be an object, not 5"),
        ([TALK[0], {"content": "x"}], "f: [1].role is missing"),
        ([TALK[0], "x"], 'f: [1] must be an object, not "x"'),
        ([TALK, [TALK[0], 5]], "f: [1][1] must be an object, not 5"),
        ([{"messages": TALK}, {"messages": 5}], "f: [1].messages must be a list, not 5"),
        ({"messages": [TALK[0], {"role": "user", "content": 5}]}, "f: messages[1].content must be a list, not 5"),
        ({"messages": TALK, "title": 5}, "f: title must be text, not 5"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_place(fault, content, expected):
    assert fault(json.dumps(content)) == expected


def test_a_fault_in_a_file_with_a_chat_on_each_line_is_named_with_its_line(fault):
    lines = [json.dumps({"messages": TALK}), json.dumps({"messages": [TALK[0], {"role": "user"}]})]
    assert fault("\n".join(lines)) == "f: line 2: messages[1].content is missing"
