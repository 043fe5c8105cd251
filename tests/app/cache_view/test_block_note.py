"""What a screen says of the block that a person points at."""

import pytest

from fake_engine import FakeEngine
from paged_chat.app.cache_view.block_note import read_block
from paged_chat.engine import EngineConfig, SamplingParams
from paged_chat.engine.errors import InvalidParameter
from patience import PATIENCE_S


@pytest.fixture
def served():
    fake = FakeEngine(num_blocks=13)
    fake.hold()
    yield fake.open(EngineConfig(model="fake"), lambda _: None), fake
    fake.close()


def test_a_block_is_told_for_people_and_for_engineers(served):
    engine, fake = served
    prompt = engine.call(lambda e: e.encode("the quick brown fox jumps over")).result(PATIENCE_S)
    fake.enqueue("ab", "cd")
    request_id = engine.submit(prompt, SamplingParams(n=2), lambda _: None).result(PATIENCE_S)
    fake.let(1)
    note = engine.call(lambda e: read_block(e, 1)).result(PATIENCE_S)
    while not note.detail.holders:
        note = engine.call(lambda e: read_block(e, 1)).result(PATIENCE_S)
    first = note.detail
    assert note.text == "the quick brown f"
    assert note.state_words == "shared by 2"
    assert note.figures_words == f"block 1, ref_count 2, hash {first.block_hash[:8]}, tokens 0 to 15"
    assert note.holders_words == f"{request_id}, {request_id} reply 2"


def test_a_free_block_says_no_more_than_that(served):
    engine, _ = served
    note = engine.call(lambda e: read_block(e, 12)).result(PATIENCE_S)
    assert (note.state_words, note.text, note.holders_words) == ("free", "", "")
    assert note.figures_words == "block 12, ref_count 0"
    with pytest.raises(InvalidParameter):
        engine.call(lambda e: read_block(e, 13)).result(PATIENCE_S)


def test_with_a_salt_a_block_of_somebody_else_keeps_its_text_to_itself(served):
    engine, fake = served
    prompt = engine.call(lambda e: e.encode("the quick brown fox jumps over")).result(PATIENCE_S)
    request_id = engine.submit(prompt, SamplingParams(), lambda _: None, salt="ann").result(PATIENCE_S)

    def note(block_id, salt):
        return engine.call(lambda e: read_block(e, block_id, salt)).result(PATIENCE_S)

    fake.let(1)
    while not note(2, "ann").text:  # published, and the second one only held
        pass
    for block_id, words in ((1, "the quick brown f"), (2, "ox jumps over")):
        own, others = note(block_id, "ann"), note(block_id, "bob")
        assert (own.text, own.holders_words, own.state_words) == (words, request_id, "held by 1")
        assert (others.text, others.holders_words, others.state_words) == ("", "", "held by 1")
        assert others.figures_words == f"block {block_id}, ref_count 1"
    fake.go()
    while note(1, "bob").detail.ref_count:
        pass
    assert (note(1, "bob").text, note(1, "bob").state_words) == ("", "cached")
    assert note(1, "ann").text == "the quick brown f"
