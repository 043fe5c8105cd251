"""ChatGPT's export: the tree with its branches, without what stands between the lines."""

import json
from collections import Counter
from datetime import UTC, datetime

import pytest

from chat_samples import outline
from paged_chat.app.imported_chat import ImportedMessage

START = 1_764_400_000.5
STARTED_AT = datetime(2025, 11, 29, 7, 6, 40, 500_000, tzinfo=UTC)


def node(node_id, parent, role=None, *parts, children=(), **message):
    """A node of a mapping, as an export has it; without a role it is a root."""
    content = message.pop("content", {"content_type": "text", "parts": list(parts)})
    metadata = message.pop("metadata", {})
    return {
        "id": node_id,
        "message": None
        if role is None
        else {
            "id": node_id,
            "author": {"role": role, "name": None, "metadata": {}},
            "create_time": message.pop("create_time", START),
            "update_time": None,
            "content": content,
            "status": "finished_successfully",
            "end_turn": None,
            "weight": 1.0,
            "metadata": metadata,
            "recipient": message.pop("recipient", "all"),
        },
        "parent": parent,
        "children": list(children),
    }


def conversation(*nodes, **fields):
    return {
        "title": "Lisbon",
        "create_time": START,
        "update_time": START + 60,
        "mapping": {node["id"]: node for node in nodes},
        "moderation_results": [],
        "current_node": nodes[-1]["id"],
        "conversation_id": "6a1",
    } | fields


def test_a_conversation_with_its_times_and_model(read):
    content = [
        conversation(
            node("root", None, children=["s"]),
            node("s", "root", "system", "", children=["q"], metadata={"is_visually_hidden_from_conversation": True}),
            node("q", "s", "user", "three days?", children=["a"]),
            node(
                "a",
                "q",
                "assistant",
                "Alfama.",
                create_time=START + 5,
                metadata={"model_slug": "gpt-4o", "finish_details": {"type": "stop", "stop_tokens": [1]}},
            ),
            is_archived=True,
        )
    ]
    read_chats = read(json.dumps(content))
    [chat] = read_chats.chats
    assert (chat.title, chat.has_own_title, chat.is_archived, chat.model) == ("Lisbon", True, True, None)
    assert (chat.created_at, chat.updated_at.timestamp(), chat.active_leaf) == (STARTED_AT, START + 60, 1)
    assert chat.messages == (
        ImportedMessage(parent=None, role="user", text="three days?", created_at=STARTED_AT),
        ImportedMessage(
            parent=0,
            role="assistant",
            text="Alfama.",
            model="gpt-4o",
            finish_reason="stop",
            created_at=STARTED_AT.replace(second=45),
        ),
    )
    assert read_chats.left_out == Counter()


def test_branches_stay_in_the_order_in_which_they_were_made(read):
    content = conversation(
        node("root", None, children=["q1", "q2"]),
        node("a2", "q1", "assistant", "Belém."),
        node("q2", "root", "user", "two days?", children=["a3"]),
        node("a3", "q2", "assistant", "Graça."),
        node("q1", "root", "user", "three days?", children=["a1", "a2"]),
        node("a1", "q1", "assistant", "Alfama.", children=["q3"]),
        node("q3", "a1", "user", "and then?"),
        current_node="q3",
    )
    [chat] = read(json.dumps([content])).chats
    assert outline(chat) == [
        (None, "user", "three days?"),
        (0, "assistant", "Alfama."),
        (1, "user", "and then?"),
        (0, "assistant", "Belém."),
        (None, "user", "two days?"),
        (4, "assistant", "Graça."),
    ]
    assert chat.active_leaf == 2


def test_a_reply_that_called_a_tool_is_one_reply(read):
    content = conversation(
        node("q", None, "user", "weather?", children=["a1"]),
        node("a1", "q", "assistant", "Let me look.", children=["t1"]),
        node("t1", "a1", "assistant", "search(...)", recipient="browser", children=["t2"]),
        node("t2", "t1", "tool", "rain", children=["t3"]),
        node("t3", "t2", "assistant", content={"content_type": "thoughts", "thoughts": []}, children=["a2"]),
        node("a2", "t3", "assistant", "It rains.", metadata={"model_slug": "gpt-5"}),
    )
    read_chats = read(json.dumps([content]))
    [chat] = read_chats.chats
    assert outline(chat) == [(None, "user", "weather?"), (0, "assistant", "Let me look.\n\nIt rains.")]
    assert (chat.messages[1].model, chat.active_leaf) == ("gpt-5", 1)
    assert read_chats.left_out == Counter({"tool messages": 2, "reasoning": 1})


def test_replies_that_part_after_a_tool_stay_apart(read):
    content = conversation(
        node("q", None, "user", "weather?", children=["a1"]),
        node("a1", "q", "assistant", "Let me look.", children=["a2", "a3"]),
        node("a2", "a1", "assistant", "It rains."),
        node("a3", "a1", "assistant", "It pours."),
    )
    [chat] = read(json.dumps([content])).chats
    assert outline(chat) == [
        (None, "user", "weather?"),
        (0, "assistant", "Let me look."),
        (1, "assistant", "It rains."),
        (1, "assistant", "It pours."),
    ]


def test_what_a_chat_cannot_hold_leaves_a_mark_and_is_counted(read):
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    audio = {"content_type": "audio_asset_pointer", "asset_pointer": "file-service://y"}
    spoken = {"content_type": "audio_transcription", "text": "and by tram"}
    content = conversation(
        node("c", None, "user", content={"content_type": "user_editable_context", "user_profile": "…"}, children=["q"]),
        node(
            "q",
            "c",
            "user",
            content={"content_type": "multimodal_text", "parts": [image, "what is this?", audio, spoken, None]},
            metadata={"attachments": [{"name": "x.png", "mime_type": "image/png"}, {"name": "tour.pdf"}]},
        ),
    )
    read_chats = read(json.dumps([content]))
    assert outline(read_chats.chats[0]) == [
        (None, "user", "[image]\nwhat is this?\n[attachment]\nand by tram\n\n[attachment: tour.pdf]")
    ]
    assert read_chats.left_out == Counter({"images": 1, "attachments": 2, "custom instructions": 1})


def test_the_first_system_message_that_shows_is_the_system_prompt(read):
    content = conversation(
        node("s", None, "system", "Be brief.", children=["q"]),
        node("q", "s", "user", "hello", children=["s2"]),
        node("s2", "q", "system", "The date is today.", children=["a"]),
        node("a", "s2", "assistant", "hi"),
    )
    read_chats = read(json.dumps([content]))
    [chat] = read_chats.chats
    assert chat.system_prompt == "Be brief."
    assert outline(chat) == [(None, "user", "hello"), (0, "assistant", "hi")]
    assert read_chats.left_out == Counter({"system messages": 1})


@pytest.mark.parametrize("title", [None, ""])
def test_a_missing_title_is_made_of_the_first_line(read, title):
    content = conversation(node("q", None, "user", "\n  three   days?\nin May"), title=title)
    [chat] = read(json.dumps([content])).chats
    assert (chat.title, chat.has_own_title) == ("three days?", False)


def test_missing_times_are_those_around_them(read):
    content = conversation(node("q", None, "user", "hello", create_time=None), update_time=None)
    [chat] = read(json.dumps([content])).chats
    assert chat.messages[0].created_at == chat.created_at == chat.updated_at == STARTED_AT
    before = datetime.now(UTC)
    [chat] = read(json.dumps([content | {"create_time": None}])).chats
    assert before <= chat.created_at <= datetime.now(UTC)


def test_an_interrupted_reply_is_a_stopped_one(read):
    content = conversation(
        node("q", None, "user", "hello", children=["a"]),
        node("a", "q", "assistant", "Once upon", metadata={"finish_details": {"type": "interrupted"}}),
    )
    reply = read(json.dumps([content])).chats[0].messages[1]
    assert (reply.status, reply.finish_reason) == ("stopped", "abort")


def test_a_conversation_without_messages_is_an_empty_chat(read):
    [chat] = read(json.dumps([conversation(node("root", None))])).chats
    assert (chat.messages, chat.active_leaf, chat.title) == ((), None, "Lisbon")


def test_what_is_shown_may_be_left_out_itself(read):
    content = conversation(
        node("q", None, "user", "weather?", children=["a"]),
        node("a", "q", "assistant", "Rain.", children=["t"]),
        node("t", "a", "tool", "…"),
    )
    assert read(json.dumps([content])).chats[0].active_leaf == 1


def test_a_chain_of_ten_thousand_nodes_is_read(read):
    nodes = [node("n0", None)]
    nodes += [node(f"n{i}", f"n{i - 1}", ("assistant", "user")[i % 2], str(i)) for i in range(1, 10_001)]
    [chat] = read(json.dumps([conversation(*nodes)])).chats
    assert len(chat.messages) == 10_000
    assert [message.parent for message in chat.messages[:3]] == [None, 0, 1]


def test_one_conversation_alone_and_half_a_title_are_read(read):
    [chat] = read(json.dumps(conversation(node("q", None, "user", "hello"), title="half \ud83d"))).chats
    assert chat.title == "half \ufffd"


@pytest.mark.parametrize(
    ("nodes", "fields", "expected"),
    [
        ([node("q", "nobody", "user", "x")], {}, '[1].mapping.q.parent names "nobody", which isn\'t in the mapping'),
        (
            [node("a", "b", "user", "x"), node("b", "a", "user", "x")],
            {},
            "[1].mapping.a.parent leads in a circle",
        ),
        ([node("a", "a", "user", "x")], {}, "[1].mapping.a.parent leads in a circle"),
        ([node("q", None)], {"current_node": "x"}, '[1].current_node names "x", which isn\'t in the mapping'),
        ([node("q", None)], {"mapping": []}, "[1].mapping must be an object, not a list"),
        ([node("q", None)], {"mapping": {"\x1b[31m q": 5}}, '[1].mapping["\\u001b[31m q"] must be an object, not 5'),
        ([node("q", None)], {"title": 5}, "[1].title must be text, not 5"),
        ([node("q", None)], {"create_time": 1e18}, "[1].create_time must be seconds since 1970, not 1e+18"),
        ([node("q", None)], {"create_time": "now"}, '[1].create_time must be a number, not "now"'),
        ([node("q", None, "user", 5)], {}, "[1].mapping.q.message.content.parts[0] must be an object, not 5"),
        (
            [node("q", None, "user", content={"content_type": "text", "text": 5})],
            {},
            "[1].mapping.q.message.content.text must be text, not 5",
        ),
        ([node("q", None, 5)], {}, "[1].mapping.q.message.author.role must be text, not 5"),
    ],
)
def test_a_fault_is_named_with_its_place(fault, nodes, fields, expected):
    content = [conversation(node("q", None, "user", "fine")), conversation(*nodes, **fields)]
    assert fault(json.dumps(content)) == f"f: {expected}"
