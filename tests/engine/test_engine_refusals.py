"""What an engine refuses, in words, before anything is computed."""

import pytest

from paged_chat.engine import ChatMessage, Engine, EngineConfig, PagedChatError, SamplingParams
from paged_chat.engine.errors import (
    EmptyPrompt,
    EngineClosed,
    InvalidParameter,
    ModelNotFound,
    OutOfMemory,
    PromptTooLong,
    StepFailed,
    TokenizerMissing,
)
from replies import greedy

PROMPT = [1, *((7 * i) % 300 + 3 for i in range(199))]

# What is refused


def test_an_empty_prompt_is_refused(engine):
    with pytest.raises(EmptyPrompt, match="at least one token"):
        engine.submit([])


@pytest.mark.parametrize("token_id", [-1, 320, 10**12, 1.0, "5", None, True])
def test_an_id_outside_the_vocabulary_is_refused(engine, token_id):
    with pytest.raises(InvalidParameter, match=r"0 to 319"):
        engine.submit([5, token_id, 6])


def test_a_prompt_that_leaves_no_room_in_the_window_is_refused_with_both_numbers(make_engine):
    engine = make_engine(max_model_len=64)
    for length in (64, 65, 199):
        with pytest.raises(PromptTooLong, match=rf"{length} tokens.* 64"):
            engine.submit(PROMPT[:length])


def test_more_replies_than_places_are_refused(make_engine):
    with pytest.raises(InvalidParameter, match=r"n is 5.*4"):
        make_engine(max_num_seqs=4).submit(PROMPT[:5], greedy(3, n=5))


def test_of_what_there_is_one_the_words_say_one(make_engine):
    engine = make_engine(num_blocks=2, max_num_seqs=1)  # one block is the null block
    with pytest.raises(PromptTooLong, match=r"17 tokens and needs 2 blocks, and the pool has 1 block for 16 tokens:"):
        engine.submit(PROMPT[:17])
    with pytest.raises(InvalidParameter, match=r"n is 2, but at most 1 reply runs at once"):
        engine.submit(PROMPT[:5], greedy(3, n=2))
    with pytest.raises(InvalidParameter, match=r"^1 prompt needs one SamplingParams or as many, not 2$"):
        engine.generate([PROMPT[:5]], [greedy(3), greedy(3)])
    with pytest.raises(InvalidParameter, match=r"not '.{30}' and 1 character more$"):
        EngineConfig(model="tiny", device="x" * 31)


def test_stop_strings_need_a_tokenizer(engine):
    with pytest.raises(InvalidParameter, match="tokenizer"):
        engine.submit(PROMPT[:5], SamplingParams(stop="end"))


def test_text_needs_a_tokenizer(engine):
    for call in (
        lambda: engine.tokenizer,
        lambda: engine.encode("a"),
        lambda: engine.decode([5]),
        lambda: engine.encode_chat([ChatMessage("user", "a")]),
        lambda: engine.generate(["a"]),
    ):
        with pytest.raises(TokenizerMissing, match=r"tokenizer\.json"):
            call()


def test_one_refused_prompt_refuses_the_call_before_anything_is_computed(engine):
    with pytest.raises(EmptyPrompt):
        engine.generate([PROMPT[:20], []], greedy(3))
    assert not engine.has_unfinished
    snapshot = engine.snapshot()
    assert (snapshot.hits, snapshot.misses, snapshot.num_free) == (0, 0, 63)


def test_every_refusal_is_a_paged_chat_error():
    for error in (EmptyPrompt, PromptTooLong, InvalidParameter, TokenizerMissing, EngineClosed, StepFailed):
        assert issubclass(error, PagedChatError)


def test_a_model_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(ModelNotFound, match="no-such-model"):
        Engine(EngineConfig(model=str(tmp_path / "no-such-model")))


def test_a_pool_larger_than_memory_is_refused(make_engine):
    with pytest.raises(OutOfMemory, match="num_blocks"):
        make_engine(num_blocks=2**31 - 1)
