"""What a screen says of the block that a person points at."""

import pytest

from fake_engine import FakeEngine
from paged_chat.app.block_note import read_block
from paged_chat.engine import EngineConfig, SamplingParams
from paged_chat.engine.errors import InvalidParameter


@pytest.fixture
def served():
    fake = FakeEngine(num_blocks=13)
    fake.hold()
    yield fake.open(EngineConfig(model="fake"), lambda _: None), fake
    fake.close()


def test_a_block_is_told_for_people_and_for_engineers(served):
    engine, fake = served
    prompt = engine.call(lambda e: e.encode("the quick brown fox jumps over")).result(10)
    fake.enqueue("ab", "cd")
    request_id = engine.submit(prompt, SamplingParams(n=2), lambda _: None).result(10)
    fake.let(1)
    note = engine.call(lambda e: read_block(e, 1)).result(10)
    while not note.detail.holders:
        note = engine.call(lambda e: read_block(e, 1)).result(10)
    first = note.detail
    assert note.text == "the quick brown f"
    assert note.state_words == "shared by 2"
    assert note.figures_words == f"block 1, ref_count 2, hash {first.block_hash[:8]}, tokens 0 to 15"
    assert note.holders_words == f"{request_id}, {request_id} reply 2"


def test_a_free_block_says_no_more_than_that(served):
    engine, _ = served
    note = engine.call(lambda e: read_block(e, 12)).result(10)
    assert (note.state_words, note.text, note.holders_words) == ("free", "", "")
    assert note.figures_words == "block 12, ref_count 0"
    with pytest.raises(InvalidParameter):
        engine.call(lambda e: read_block(e, 13)).result(10)
