"""Files to import, made at random: whatever is in them, the only error is ImportRefused, and memory is bounded."""

import io
import json
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from paged_chat.app.errors import ImportRefused
from paged_chat.app.porting import read_stream

FUZZ = settings(max_examples=150, deadline=None)
MAX_BYTES = 30_000_000

texts = st.text(max_size=8) | st.sampled_from(
    ["\ud800", "\udc00\ud800", "\0", "\u202e", "\x1b[2J", "e" + "\u0301" * 50]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
node_ids = st.sampled_from(["a", "b", "c", "d"])


def field(sound):
    """Mostly what belongs there, now and then anything."""
    return st.one_of(sound, sound, sound, values)


messages = st.fixed_dictionaries(
    {
        "author": field(st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system", "tool"])})),
        "content": field(st.fixed_dictionaries({"content_type": texts, "parts": field(st.lists(values, max_size=3))})),
        "create_time": field(st.floats()),
    },
    optional={"metadata": values, "recipient": values},
)
nodes = st.fixed_dictionaries(
    {"parent": field(st.none() | node_ids), "children": field(st.lists(node_ids, max_size=4))},
    optional={"message": field(messages)},
)
chatgpt = st.fixed_dictionaries(
    {"mapping": field(st.dictionaries(node_ids, field(nodes), max_size=4))},
    optional={"current_node": field(node_ids), "title": values, "create_time": values, "update_time": values},
)
own = st.fixed_dictionaries(
    {"format": st.just("paged-chat"), "version": field(st.just(1)), "chats": field(st.lists(values, max_size=2))}
)
role_lists = st.lists(st.fixed_dictionaries({"role": field(st.sampled_from(["user", "assistant"])), "content": values}))


def only_refused(content: bytes) -> None:
    tracemalloc.start()
    try:
        read = read_stream(io.BufferedReader(io.BytesIO(content)), "file")  # type: ignore[type-var]
        for chat in read.chats:
            for message in chat.messages:
                message.text.encode()
    except ImportRefused as refused:
        str(refused).encode()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MAX_BYTES


@FUZZ
@given(st.lists(chatgpt, max_size=2) | chatgpt | own | role_lists | values)
def test_json_of_every_shape(value):
    only_refused(json.dumps(value).encode())


@FUZZ
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"[", b'{"mapping":', b"PK\x03\x04", b"PK\x05\x06", b"<!-- paged-chat "]),
)
def test_bytes_of_every_kind(content, beginning):
    only_refused(beginning + content)


@FUZZ
@given(st.data())
def test_markdown_with_its_record_damaged(data):
    """Our Markdown, with some of its letters exchanged."""
    sound = (
        "<!-- paged-chat:chat 1 -->\n# Title\n\n<!-- paged-chat:message 1 -->\n## you\n\nhello\n\n"
        '<!-- paged-chat:record\n{"title": "Title", "messages": [{"id": 1, "parent": null, "role": "user"}]}\n-->\n'
    )
    letters = list(sound)
    for place, letter in data.draw(st.lists(st.tuples(st.integers(0, len(sound) - 1), texts), max_size=4)):
        letters[place] = letter
    only_refused("".join(letters).encode(errors="replace"))


def test_a_chat_as_deep_as_a_file_allows_is_read():
    """Nodes each below the one before: no recursion over a person's file."""
    mapping = {
        f"n{i}": {
            "parent": f"n{i - 1}" if i else None,
            "children": [f"n{i + 1}"],
            "message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["x"]}},
        }
        for i in range(20_000)
    }
    read = read_stream(io.BufferedReader(io.BytesIO(json.dumps({"mapping": mapping}).encode())), "file")  # type: ignore[type-var]
    assert len(read.chats[0].messages) == 20_000
