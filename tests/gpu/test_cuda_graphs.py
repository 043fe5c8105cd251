"""Decoding through real CUDA graphs: the same logits and cache as without, bucket by bucket."""

import logging

import numpy as np
import pytest
import torch

from decode_batches import BLOCK_SIZE, decode_batch, filled_cache
from paged_chat.engine import EngineConfig
from paged_chat.engine.model.loader import load_model
from paged_chat.engine.model.model_runner import ModelRunner

NUM_BLOCKS = 400


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(tiny_model, request):
    return load_model(EngineConfig(model=str(tiny_model("smollm3")), device="cuda", dtype=request.param))


def decodes(context_lens, seed=0):
    """One decode for each context, in blocks of its own from the pool's end, so that the last block is in use."""
    generator = np.random.default_rng(seed)
    lens = np.array(context_lens)
    widths = -(-lens // BLOCK_SIZE)
    tables = np.zeros((len(lens), widths.max()), np.int32)
    last = NUM_BLOCKS
    for row, width in enumerate(widths):
        tables[row, :width] = generator.permutation(np.arange(last - width, last))
        last -= width
    assert last > 0
    return decode_batch(generator.integers(0, 300, len(lens)), tables, lens)


BATCHES = [decodes(lens) for lens in ([1], [17, 300], [33, 16, 15], [600], list(range(1, 10)), [40] * 33, [2000, 5])]


def test_graphs_equal_eager_steps_in_any_order_of_buckets(model, caplog):
    tolerance = 1e-4 if model.dtype == torch.float32 else 5e-2
    eager_cache, graph_cache = filled_cache(model, NUM_BLOCKS), filled_cache(model, NUM_BLOCKS)
    eager = ModelRunner(model.decoder, eager_cache, model.device, with_graphs=False)
    graphed = ModelRunner(model.decoder, graph_cache, model.device)
    with caplog.at_level(logging.WARNING):
        for batch in [*BATCHES, *reversed(BATCHES), *BATCHES]:
            expected, actual = eager.execute(batch), graphed.execute(batch)
            scale = float(expected.abs().max())
            torch.testing.assert_close(actual / scale, expected / scale, rtol=0, atol=tolerance)
    assert caplog.records == [], "nothing fell back"
    assert graphed._graphs.num_graphs == len(BATCHES)
    torch.testing.assert_close(graph_cache.pool[:, 1:], eager_cache.pool[:, 1:], rtol=tolerance, atol=tolerance)


def test_padding_leaves_every_block_but_its_own_and_the_null_block_as_it_was(model):
    """E13."""
    cache = filled_cache(model, NUM_BLOCKS)
    before = cache.pool.clone()
    batch = decodes([33, 16, 15])
    ModelRunner(model.decoder, cache, model.device).execute(batch)
    changed = {block_id for block_id in range(NUM_BLOCKS) if not cache.pool[:, block_id].equal(before[:, block_id])}
    assert changed - {0} == set((batch.slot_mapping // BLOCK_SIZE).tolist())


def test_steps_in_a_hurry_keep_their_own_inputs(model):
    """Steps queued without waiting: a staging buffer that was reused too early would mix them up."""
    runner = ModelRunner(model.decoder, filled_cache(model, NUM_BLOCKS), model.device)
    batches = [decodes([20, 30, 40, 50], seed) for seed in range(50)]
    slow = [runner.execute(batch).cpu() for batch in batches]
    hurried = ModelRunner(model.decoder, filled_cache(model, NUM_BLOCKS), model.device)
    queued = [hurried.execute(batch) for batch in batches]
    for actual, expected in zip(queued, slow, strict=True):
        assert actual.cpu().equal(expected)


def test_what_a_graph_reads_by_address_is_not_handed_out_again(model):
    runner = ModelRunner(model.decoder, filled_cache(model, NUM_BLOCKS), model.device)
    expected = [runner.execute(batch).cpu() for batch in BATCHES]
    litter = [torch.full((length,), 10**9, device=model.device) for length in range(1, 200)]
    for batch, logits in zip(BATCHES, expected, strict=True):
        assert runner.execute(batch).cpu().equal(logits)
    assert all(bool((each == 10**9).all()) for each in litter)
