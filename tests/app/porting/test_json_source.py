"""JSON read piece by piece: the same values as read whole, and faults with their places."""

import json
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_chat.app.errors import ImportRefused
from paged_chat.app.porting.json_source import JsonSource

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def source_of(content, **limits):
    return JsonSource(BytesIO(content if isinstance(content, bytes) else content.encode()), "f", **limits)


def refusal(content, walk=lambda source: (source.value(), source.expect_end()), **limits):
    with pytest.raises(ImportRefused) as refused:
        walk(source_of(content, **limits))
    return str(refused.value)


def walk_items(source):
    for _ in source.items():
        source.value()


def walk_members(source):
    for _ in source.members():
        source.value()


@settings(deadline=None)
@given(st.lists(json_values, max_size=4), st.sampled_from((None, 1)), st.booleans(), st.integers(1, 40))
def test_items_come_one_by_one_wherever_the_pieces_are_cut(values, indent, ensure_ascii, chunk_bytes):
    source = source_of(json.dumps(values, indent=indent, ensure_ascii=ensure_ascii), chunk_bytes=chunk_bytes)
    assert [source.value() for _ in source.items()] == values
    source.expect_end()


@settings(deadline=None)
@given(st.dictionaries(st.text(), json_values, max_size=4), st.integers(1, 40))
def test_members_come_one_by_one_wherever_the_pieces_are_cut(members, chunk_bytes):
    source = source_of(json.dumps(members, ensure_ascii=False), chunk_bytes=chunk_bytes)
    assert [(key, source.value()) for key in source.members()] == list(members.items())
    source.expect_end()


@pytest.mark.parametrize("chunk_bytes", [1, 3, 1 << 20])
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('{"a": 1,\n "b": oops}', "f: line 2, column 7: Expecting value"),
        ('["ä",\n\n "ö" "ü"]', "f: line 3, column 6: Expecting ',' delimiter"),
        ("[1, 2", "f: line 1, column 6: Expecting ',' delimiter; the file ends too early"),
        ('["abc', "f: line 1, column 2: Unterminated string starting at; the file ends too early"),
        ('{"a": "x\ny"}', "f: line 1, column 9: Invalid control character at"),
        (r'["\x"]', "f: line 1, column 3: Invalid \\escape"),
        ("[1,\n NaN]", "f: line 2, column 2: NaN isn't a number that JSON has"),
        ('["NaN", -Infinity]', "f: line 1, column 9: -Infinity isn't a number that JSON has"),
        ('[1, {"k": 1, "k": 2}]', 'f: line 1, column 1: "k" stands twice in one object'),
        ("[" * 100_000, "f: line 1, column 201: nested more than 200 levels deep"),
        ('{"a":' * 100_000, "f: line 1, column 1001: nested more than 200 levels deep"),
        ("1 2", "f: line 1, column 3: Extra data"),
        (b'["\xc3\xa4", "\xff"]', "f: byte 8 (0xff) isn't UTF-8: invalid start byte"),
        (b'["\xc3', "f: byte 2 (0xc3) isn't UTF-8: unexpected end of data"),
        (b"\xef\xbb\xbf[\xff]", "f: byte 4 (0xff) isn't UTF-8: invalid start byte"),
    ],
)
def test_a_fault_is_named_with_its_place(content, fault, chunk_bytes):
    assert refusal(content, chunk_bytes=chunk_bytes) == fault


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
@pytest.mark.parametrize(
    ("walk", "content", "fault"),
    [
        (walk_items, "[1,\n2\n3]", "f: line 3, column 1: Expecting ',' or ']'"),
        (walk_items, "[1,\n]", "f: line 2, column 1: Expecting value"),
        (walk_items, "[1,\n", "f: line 2, column 1: Expecting value; the file ends too early"),
        (walk_items, "{}", "f: line 1, column 1: Expecting '['"),
        (walk_members, '{"a": 1,\n}', "f: line 2, column 1: Expecting property name enclosed in double quotes"),
        (walk_members, '{"a" 1}', "f: line 1, column 6: Expecting ':'"),
        (walk_members, '{"a": 1,\n "a": 2}', 'f: line 2, column 2: "a" stands twice in one object'),
    ],
)
def test_a_fault_between_values_is_named_with_its_place(walk, content, fault, chunk_bytes):
    assert refusal(content, walk, chunk_bytes=chunk_bytes) == fault


def test_a_number_of_too_many_digits_is_refused():
    assert refusal("[" + "9" * 5000 + "]").startswith("f: line 1, column 1: Exceeds the limit (4300 digits)")


def test_a_byte_order_mark_is_skipped():
    assert source_of(b"\xef\xbb\xbf[1]", chunk_bytes=1).value() == [1]


def test_a_value_larger_than_a_chat_may_be_is_refused_while_it_is_read():
    content = '[{"a": 1},\n"' + "x" * 5000 + '"]'
    assert refusal(content, walk_items, max_value_chars=1000, chunk_bytes=100) == (
        "f: line 2, column 1: one value is larger than 1,000 characters, the limit for a chat"
    )


def test_many_values_may_be_larger_together_than_one_may_be():
    content = json.dumps(["x" * 90] * 100)
    source = source_of(content, max_value_chars=200, chunk_bytes=100)
    assert [source.value() for _ in source.items()] == ["x" * 90] * 100


def test_a_file_larger_than_the_limit_is_refused_while_it_is_read():
    content = json.dumps(["x" * 90] * 100)
    assert refusal(content, walk_items, max_file_bytes=1000, chunk_bytes=100) == (
        "f: larger than 1,000 bytes, the limit for a file; split it"
    )
