"""Replies that share a prompt, decoded with its blocks read once: near what each would be alone, and counted."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import tiny_gguf
from paged_chat.engine import SamplingParams
from paged_chat.engine.model.sharing_trial import BLOCKS, ROWS, few_that_share, rule_of
from paged_chat.engine.model.trial import Trial, first_win
from paged_chat.engine.shared_runs import SharingRule
from paged_chat.kernels.cpu import amx
from tile_products import needs_tiles

PROMPT = torch.randint(3, 90, (330,), generator=torch.Generator().manual_seed(4)).tolist()
SHAPE = {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64, "num_hidden_layers": 2}
ANY = SharingRule(min_rows=2, min_blocks=1)


@pytest.fixture
def open_engine(tmp_path, make_engine):
    """`open_engine(rule)`: of a model in 4 bits, as the default model is."""
    model = tiny_gguf.build("llama", tmp_path / "tiny.gguf", "Q4_0", **SHAPE)

    def open_one(rule, **fields):
        engine = make_engine(model=str(model), **{"dtype": "auto", "weights": "auto", **fields})
        engine._core._runner.sharing = rule
        return engine

    return open_one


def replies(engine, n, **fields):
    params = SamplingParams(n=n, max_tokens=20, temperature=0.7, seed=11, ignore_eos=True, logprobs=2, **fields)
    [output] = engine.generate([PROMPT], params)
    return output.samples


def num_near(shared, alone):
    """Tokens up to where two are as likely and rounding decides: from there on these are two replies."""
    same = list(itertools.takewhile(lambda pair: pair[0].token_id == pair[1].token_id, zip(shared, alone, strict=True)))
    assert all(math.isclose(mine.logprob, its.logprob, abs_tol=0.03) for mine, its in same)
    return len(same)


@needs_tiles
@pytest.mark.parametrize("n", [2, 7, 16])
def test_replies_are_those_of_the_plain_path(open_engine, n):
    """More than 12 take matrix tiles for all else too. A block is full at every 16th token of a reply."""
    engine, plain = open_engine(ANY), open_engine(None)
    pairs = zip(replies(engine, n), replies(plain, n), strict=True)
    assert sum(num_near(shared.logprobs, alone.logprobs) for shared, alone in pairs) > 10 * n
    # 19 steps after the prompt's own, in each of which all but one read the prompt's 20 full blocks from another.
    assert engine.snapshot().block_reads_saved >= 19 * 20 * (n - 1)
    assert plain.snapshot().block_reads_saved == 0


@needs_tiles
def test_replies_that_end_leave_the_others_as_they_are(open_engine):
    """One ends after a few tokens, later all but one: then nothing is shared any more."""

    def texts(engine):
        params = SamplingParams(n=3, max_tokens=20, temperature=0.7, seed=3, ignore_eos=True, logprobs=1)
        request_id = engine.submit(PROMPT, params)
        tokens = {0: [], 1: [], 2: []}
        saved = []
        for step in range(21):
            for delta in engine.step():
                tokens[delta.sample] += delta.logprobs
            saved.append(engine.snapshot().block_reads_saved)
            if step in (5, 10):
                assert engine.abort(request_id, sample=1 if step == 5 else 0)
        return tokens, np.diff(saved).tolist()

    shared, saved = texts(open_engine(ANY))
    alone, _ = texts(open_engine(None))
    assert [len(tokens) for tokens in shared.values()] == [len(tokens) for tokens in alone.values()] == [11, 6, 20]
    assert sum(num_near(shared[sample], alone[sample]) for sample in shared) > 12
    assert saved == [40] * 5 + [20] * 5 + [0] * 10


@needs_tiles
def test_chats_that_begin_alike_share_beside_a_prompt_that_comes_in(open_engine):
    engine, plain = open_engine(ANY), open_engine(None)
    outputs = []
    for one in (engine, plain):
        params = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True, logprobs=1)
        one.generate([PROMPT], params)  # now its blocks are there to be reused
        ids = [one.submit([*PROMPT[:320], *range(10 + i, 30 + i)], params) for i in range(3)]
        tokens = {request_id: [] for request_id in ids}
        for step in range(20):
            if step == 4:
                late = one.submit(PROMPT[100:300], params)
                tokens[late] = []
            for delta in one.step():
                tokens[delta.request_id] += delta.logprobs
        outputs.append(list(tokens.values()))
    assert [len(logprobs) for logprobs in outputs[0]] == [12] * 4
    assert sum(num_near(shared, alone) for shared, alone in zip(*outputs, strict=True)) > 24
    assert engine.snapshot().block_reads_saved > 0


@pytest.mark.parametrize("n", [2, 7])
def test_int8_shares_and_keeps_its_promise_to_the_bit(open_engine, n):
    """By vectors, whole pieces of 16 blocks: of the prompt's 20 full blocks the first 16."""
    rule = SharingRule(min_rows=2, min_blocks=1, unit_blocks=16)
    engine, plain = open_engine(rule, weights="int8"), open_engine(None, weights="int8")
    assert [sample.logprobs for sample in replies(engine, n)] == [sample.logprobs for sample in replies(plain, n)]
    assert engine.snapshot().block_reads_saved == 19 * 16 * (n - 1)


@pytest.mark.parametrize(("weights", "unit_blocks"), [("auto", 1 if amx.has_tiles() else 16), ("int8", 16)])
def test_a_load_measures_when_sharing_pays_or_takes_what_usually_does(open_engine, weights, unit_blocks):
    rule = open_engine(None, weights=weights)._model.sharing
    assert rule is None or (2 <= rule.min_rows <= max(ROWS) and 1 <= rule.min_blocks <= max(BLOCKS))
    assert rule is None or rule.unit_blocks == unit_blocks


def test_sharing_pays_from_the_first_candidate_on_after_which_it_always_wins():
    faster, slower = Trial([2.0, 2.1], [1.5, 1.6]), Trial([2.0, 2.1], [2.2, 2.1])
    assert first_win((2, 3, 4), [slower, faster, faster]) == 3
    assert first_win((2, 3, 4), [faster, slower, faster]) == 4
    assert first_win((2, 3, 4), [faster, faster, slower]) is None
    assert rule_of((3, 16), uses_tiles=True) == SharingRule(min_rows=3, min_blocks=16)
    assert rule_of((3, 16), uses_tiles=False) == SharingRule(min_rows=3, min_blocks=16, unit_blocks=16)
    assert rule_of((0, 16), uses_tiles=True) is None
    assert rule_of((3, 0), uses_tiles=False) is None


def test_it_is_measured_on_layers_that_share_whatever_windows_a_model_has(open_engine):
    config = open_engine(None)._model.model_config
    windowed = replace(config, num_layers=6, windows=(512,) * 5 + (None,), nope=(False,) * 6)
    few = few_that_share(windowed)
    assert (few.num_layers, few.windows) == (3, (None, None, None))
