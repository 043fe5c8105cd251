"""What is asked of an engine, as values that another process understands."""

from dataclasses import dataclass

import pytest

from paged_chat.app.cache_view.block_note import BlockNote, read_block
from paged_chat.app.cache_view.block_view import read_pool
from paged_chat.app.engine_query import query_kinds, text_query


@dataclass
class Pool:
    """Of an engine's methods the one that is asked for."""

    def events(self, since):
        return [since, since + 1]

    def snapshot(self):
        return self

    num_events = 100


def test_a_query_is_a_name_and_its_arguments_and_answers_when_it_meets_an_engine():
    query = read_pool.ask(7)
    assert query == read_pool.ask(since=7)
    assert (query.kind.name, query.arguments) == ("read_pool", {"since": 7})
    assert query(Pool()).events == [7, 8]
    assert read_pool(Pool(), 200).events == [100, 101], "a kind called with an engine answers at once"


def test_arguments_that_are_left_out_keep_their_defaults():
    assert read_block.ask(3).arguments == {"block_id": 3}
    assert read_block.ask(3, salt="ann").arguments == {"block_id": 3, "salt": "ann"}


def test_a_kind_knows_the_types_of_its_arguments_and_of_its_answer_without_the_engines():
    assert read_block.parameters == {"block_id": int, "salt": str | None}
    assert read_block.result is BlockNote


def test_a_kind_is_found_by_its_name_and_no_two_have_one():
    assert query_kinds()["read_block"] is read_block

    def read_block_(engine: object) -> int:
        return 0

    read_block_.__name__ = "read_block"
    with pytest.raises(AssertionError, match="two kinds of queries are called read_block"):
        text_query(read_block_)
