"""From how many rows on dense weights are faster: measured, and believed only where the times are steady."""

from dataclasses import replace

import pytest
import torch

import tiny_gguf
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.model import crossover
from paged_chat.engine.model.crossover import CANDIDATES, NEVER_FASTER, cross, measure_crossover
from paged_chat.engine.model.decoder import Decoder
from paged_chat.engine.model.loader import load_model
from paged_chat.engine.model.packed_weights import from_tensors, pack_weights
from paged_chat.engine.model.trial import Trial
from paged_chat.engine.model.weights import fused_tensors


def trials(packed_ms_per_row, dense_ms, dense_ms_per_row, spread=1.1):
    """Of three rounds each, for every candidate; the slowest is `spread` times the fastest."""
    factors = (1.0, spread, spread)
    return [
        Trial(
            usual_s=[packed_ms_per_row * rows * factor for factor in factors],
            other_s=[(dense_ms + dense_ms_per_row * rows) * factor for factor in factors],
        )
        for rows in CANDIDATES
    ]


@pytest.mark.parametrize(
    ("dense_ms", "dense_ms_per_row", "expected"),
    [(0, 0.1, 48), (50, 0.4, 96), (100, 0.4, 192), (0, 1.1, NEVER_FASTER), (1000, 0.1, NEVER_FASTER)],
)
def test_dense_weights_begin_where_they_win_from_then_on(dense_ms, dense_ms_per_row, expected):
    assert cross(trials(1.0, dense_ms, dense_ms_per_row)) == expected


def test_one_win_below_a_loss_does_not_count():
    measured = trials(1.0, 50, 0.4)
    measured[0] = replace(measured[0], other_s=[1.0, 1.1, 1.1])
    assert cross(measured) == 96


def test_unsteady_times_are_not_believed():
    assert cross(trials(1.0, 50, 0.4, spread=1.6)) is None
    measured = trials(1.0, 50, 0.4)
    measured[3] = replace(measured[3], usual_s=[measured[3].usual_s[0], 900.0, 900.0])
    assert cross(measured) is None


def test_what_is_measured_on_a_real_model_is_a_candidate_or_not_believed(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(crossover, "NUM_ROUNDS", 2)
    # With the default model's heads, for which all is compiled anyway.
    shape = {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64}
    path = tiny_gguf.build("mistral", tmp_path / "m.gguf", num_hidden_layers=4, **shape)
    loaded = load_model(EngineConfig(model=str(path), weights="dense"))
    config, dense = loaded.model_config, loaded.decoder
    assert isinstance(dense, Decoder)
    generator = torch.Generator().manual_seed(0)
    values = ((tensor, torch.randn(tensor.shape, generator=generator)) for tensor in fused_tensors(config))
    packed = from_tensors(4, pack_weights(config, 4, values, lambda _: None))
    assert measure_crossover(config, packed, dense, loaded.dtype) in (*CANDIDATES, NEVER_FASTER, None)
