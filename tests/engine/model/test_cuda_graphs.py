"""Decoding through graphs, with a stand-in for the recording: it runs the step again on the same static inputs.

All but the recording itself is the same on a GPU: buckets, padding, what is copied where, who falls back.
"""

import dataclasses
import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch

from decode_batches import BLOCK_SIZE, decode_batch, filled_cache
from paged_chat.engine import Engine, EngineConfig, SamplingParams
from paged_chat.engine.batch import Batch
from paged_chat.engine.model import model_runner
from paged_chat.engine.model.cuda_graphs import (
    MAX_ROWS,
    GraphedDecoder,
    StaticInputs,
    choose_capture,
    column_bucket,
    row_bucket,
)
from paged_chat.engine.model.decoder import DecoderInput
from paged_chat.engine.model.loader import LoadedModel, load_model
from paged_chat.engine.model.model_runner import ModelRunner

CPU = torch.device("cpu")
NUM_BLOCKS = 12


class RecordedRuns:
    """Stands in for CUDA: a replay runs the function again."""

    def __init__(self) -> None:
        self.num_recorded = 0
        self.num_replayed = 0

    def __call__(self, run: Callable[[], object]) -> Callable[[], object]:
        self.num_recorded += 1

        def replay() -> None:
            self.num_replayed += 1
            run()

        return replay


def decodes(*sequences: tuple[int, list[int], int], wanted: list[int] | None = None) -> Batch:
    """(token id, block table, context length) of each sequence, the token included."""
    widest = max(len(table) for _, table, _ in sequences)
    return decode_batch(
        np.array([token_id for token_id, _, _ in sequences], np.int64),
        np.array([table + [0] * (widest - len(table)) for _, table, _ in sequences], np.int32),
        np.array([context_len for _, _, context_len in sequences], np.int64),
        None if wanted is None else np.array(wanted, np.int64),
    )


@pytest.fixture(scope="module")
def model(tiny_model) -> LoadedModel:
    return load_model(EngineConfig(model=str(tiny_model("smollm3")), device="cpu", dtype="float32", weights="dense"))


@pytest.fixture
def recorded(monkeypatch) -> RecordedRuns:
    """Runners made from here on decode through recorded runs."""
    runs = RecordedRuns()
    monkeypatch.setattr(model_runner, "choose_capture", lambda device, backend_name: runs)
    return runs


BATCHES = {
    "one": decodes((5, [3], 1)),
    "three of a bucket of four": decodes((5, [3, 7], 18), (9, [11], 16), (300, [1, 2, 4], 48)),
    "a whole bucket": decodes((5, [3, 7], 17), (9, [11], 2)),
    "nine of sixteen": decodes(*((row, [row], row) for row in range(1, 10))),
    "a table wider than its context": decodes((5, [3, 7, 8, 9], 17)),
    "some logits": decodes((5, [3, 7], 18), (9, [11], 16), (8, [1], 4), wanted=[0, 2]),
    "no logits": decodes((5, [3, 7], 18), wanted=[]),
}


def test_buckets():
    assert [row_bucket(rows) for rows in (1, 2, 3, 4, 5, 8, 9, 16, 17, 24, 25, 64)] == [
        1, 2, 4, 4, 8, 8, 16, 16, 24, 24, 32, 64,
    ]  # fmt: skip
    assert [column_bucket(columns) for columns in (0, 1, 2, 3, 5, 16, 17, 512)] == [1, 1, 2, 4, 8, 16, 32, 512]


def test_inputs_stay_where_they_are_and_what_a_batch_leaves_is_padding():
    inputs = StaticInputs(4, 4, CPU)
    tensors = inputs.tensors(BLOCK_SIZE)
    inputs.fill(decodes(*((7, [3, 4, 5], 48),) * 4))
    inputs.fill(decodes((5, [3, 7], 18), (9, [11], 16)))
    assert tensors.input_ids.tolist() == [5, 9, 0, 0]
    assert tensors.positions.tolist() == [17, 15, 0, 0]
    assert tensors.slot_mapping.tolist() == [7 * 16 + 1, 11 * 16 + 15, 0, 0]
    assert tensors.block_tables.tolist() == [[3, 7, 0, 0], [11, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert tensors.context_lens.tolist() == [18, 16, 0, 0]
    assert (tensors.num_decodes, tensors.max_query_len, tensors.max_context_len) == (4, 0, 64)
    assert tensors.logits_rows.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 2), (2, 1), (24, 32)])
def test_each_input_is_aligned_for_triton(rows, columns):
    tensors = StaticInputs(rows, columns, CPU).tensors(BLOCK_SIZE)
    views = (tensors.input_ids, tensors.positions, tensors.slot_mapping, tensors.block_tables, tensors.context_lens)
    assert [view.storage_offset() * view.itemsize % 16 for view in views] == [0] * 5


@pytest.mark.parametrize("name", BATCHES)
def test_logits_and_cache_equal_those_of_a_step_without_graphs(model, recorded, name):
    eager_cache, graph_cache = filled_cache(model, NUM_BLOCKS), filled_cache(model, NUM_BLOCKS)
    eager = ModelRunner(model.decoder, eager_cache, CPU, with_graphs=False).execute(BATCHES[name])
    runner = ModelRunner(model.decoder, graph_cache, CPU)
    for _ in range(2):  # a step replayed writes the same once more
        torch.testing.assert_close(runner.execute(BATCHES[name]), eager, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(graph_cache.pool[:, 1:], eager_cache.pool[:, 1:], rtol=1e-5, atol=1e-5)
    assert (recorded.num_recorded, recorded.num_replayed) == (1, 2)


def test_padding_and_recording_touch_the_null_block_alone(model, recorded):
    """E13, with the last block of the pool in use."""
    cache = filled_cache(model, NUM_BLOCKS)
    before = cache.pool.clone()
    runner = ModelRunner(model.decoder, cache, CPU)
    runner.execute(decodes((5, [3, NUM_BLOCKS - 1], 20), (9, [7], 3), (8, [1], 1)))
    changed = {block_id for block_id in range(NUM_BLOCKS) if not cache.pool[:, block_id].equal(before[:, block_id])}
    assert changed == {0, NUM_BLOCKS - 1, 7, 1}
    elements = cache.pool[:, NUM_BLOCKS - 1].ne(before[:, NUM_BLOCKS - 1]).sum()
    assert elements == model.model_config.num_layers * 2 * model.model_config.kv_width, "one token of it"


def test_logits_of_one_step_outlive_the_next(model, recorded):
    runner = ModelRunner(model.decoder, filled_cache(model, NUM_BLOCKS), CPU)
    first = runner.execute(BATCHES["a whole bucket"])
    kept = first.clone()
    runner.execute(decodes((100, [5], 3), (101, [6], 4)))
    assert first.equal(kept)


def test_a_bucket_is_recorded_once_and_each_bucket_keeps_its_own_sizes(model, recorded):
    runner = ModelRunner(model.decoder, filled_cache(model, NUM_BLOCKS), CPU)
    eager = ModelRunner(model.decoder, filled_cache(model, NUM_BLOCKS), CPU, with_graphs=False)
    # Small, large, then small again: a larger tensor of logits must not take the older graph's away.
    order = ["one", "nine of sixteen", "three of a bucket of four", "one", "nine of sixteen"]
    for name in order:
        torch.testing.assert_close(runner.execute(BATCHES[name]), eager.execute(BATCHES[name]), rtol=1e-5, atol=1e-5)
    assert (recorded.num_recorded, recorded.num_replayed) == (3, 5)


def test_prefills_and_mixed_steps_run_without_graphs(model, recorded):
    runner = ModelRunner(model.decoder, filled_cache(model, NUM_BLOCKS), CPU)
    runner.warm_up(20)
    assert recorded.num_recorded == 0
    runner.warm_up(1)
    assert recorded.num_recorded == 1


def test_too_many_rows_run_without_graphs():
    def forward(inputs):
        raise AssertionError("not to be run")

    rows = decodes(*((1, [1], 1) for _ in range(MAX_ROWS + 1)))
    assert GraphedDecoder(forward, RecordedRuns(), CPU, BLOCK_SIZE).run(rows) is None


def test_a_recording_that_fails_is_logged_and_the_steps_go_on_without(model, monkeypatch, caplog):
    attempts = []

    def failing(run):
        attempts.append(run)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(model_runner, "choose_capture", lambda device, backend_name: failing)
    cache, eager_cache = filled_cache(model, NUM_BLOCKS), filled_cache(model, NUM_BLOCKS)
    runner = ModelRunner(model.decoder, cache, CPU)
    eager = ModelRunner(model.decoder, eager_cache, CPU, with_graphs=False)
    for name in ("one", "three of a bucket of four", "one"):
        assert runner.execute(BATCHES[name]).equal(eager.execute(BATCHES[name]))
    assert len(attempts) == 1
    [message] = [record.getMessage() for record in caplog.records]
    assert message == (
        "decoding without CUDA graphs: recording 1 rows x 1 blocks failed: "
        "RuntimeError: operation not permitted when stream is capturing"
    )


def test_the_rotary_tables_of_a_graph_outlive_longer_contexts(tiny_model, recorded):
    """A longer context replaces the decoder's tables; a graph recorded before reads the old ones, by address."""
    config = EngineConfig(model=str(tiny_model()), device="cpu", dtype="float32", weights="dense", max_model_len=16)
    small = load_model(config)
    runner = ModelRunner(small.decoder, filled_cache(small, NUM_BLOCKS), CPU)
    runner.execute(BATCHES["one"])
    [graph] = runner._graphs._graphs.values()
    old = small.decoder.cos
    assert graph.kept[0] is old
    runner.execute(BATCHES["three of a bucket of four"])
    assert len(small.decoder.cos) >= 64, "as far as the bucket's tables reach"
    assert graph.kept[0] is old


def test_a_graph_keeps_all_that_it_reads_though_its_recording_holds_no_tensor():
    read: list[weakref.ref[torch.Tensor]] = []

    def forward(inputs: DecoderInput) -> torch.Tensor:
        fields = [getattr(inputs, field.name) for field in dataclasses.fields(inputs)]
        read.extend(weakref.ref(value) for value in fields if isinstance(value, torch.Tensor))
        return torch.zeros(len(inputs.input_ids), 320)

    def forgetful(run: Callable[[], object]) -> Callable[[], object]:
        run()
        return lambda: None

    graphs = GraphedDecoder(forward, forgetful, CPU, BLOCK_SIZE)
    assert graphs.run(BATCHES["three of a bucket of four"]) is not None
    gc.collect()
    assert len(read) == 14
    assert all(tensor() is not None for tensor in read)


def test_only_triton_on_a_gpu_is_recorded():
    assert choose_capture(CPU, "triton") is None
    assert choose_capture(torch.device("cuda"), "reference") is None


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_engine_gives_the_same_replies(tiny_model, monkeypatch, temperature):
    prompts = [[5, 6, 7], list(range(3, 40)), [9] * 20, [300, 11]]
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=20, n=2, ignore_eos=True)

    def replies():
        config = EngineConfig(
            model=str(tiny_model()), device="cpu", dtype="float32", weights="dense", num_blocks=64, check_integrity=True
        )
        with Engine(config) as engine:
            return [[s.token_ids for s in output.samples] for output in engine.generate(prompts, params)]

    expected = replies()
    runs = RecordedRuns()
    monkeypatch.setattr(model_runner, "choose_capture", lambda device, backend_name: runs)
    assert replies() == expected
    assert runs.num_replayed >= 19
