"""What the host reads of a step's logits, and in how many copies."""

import pytest
import torch

from paged_chat.engine import step_logits
from paged_chat.engine.step_logits import StepLogits, peaks_on_device, peaks_on_host


class CountedTensor(torch.Tensor):
    """Counts how often it is brought to the host."""

    num_copies = 0

    def cpu(self, *args, **options):
        CountedTensor.num_copies += 1
        return super().cpu(*args, **options).as_subclass(torch.Tensor)


@pytest.fixture
def on_device(monkeypatch):
    """Logits that stand as if on a device: they are read by copies alone."""
    monkeypatch.setattr(step_logits, "peaks_on_host", peaks_on_device)
    monkeypatch.setattr(CountedTensor, "num_copies", 0)

    def make(values: torch.Tensor) -> StepLogits:
        logits = StepLogits(values.as_subclass(CountedTensor))
        logits._on_host = None
        return logits

    return make


@pytest.mark.parametrize("peaks_of", [peaks_on_host, peaks_on_device])
def test_the_likeliest_is_the_first_of_the_largest(peaks_of):
    likeliest, peaks = peaks_of(torch.tensor([[0.0, 7.0, 7.0], [-3.0, -2.0, -9.0]]))
    assert (likeliest, peaks.tolist()) == ([1, 1], [7.0, -2.0])


@pytest.mark.parametrize("peaks_of", [peaks_on_host, peaks_on_device])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_row_is_faulty_wherever_the_value_stands(peaks_of, value, monkeypatch):
    monkeypatch.setattr(step_logits, "peaks_on_host", peaks_of)
    values = torch.randn(5, 200)
    values[1, 0], values[3, 199] = value, value
    values[4, 7] = -1e30
    assert StepLogits(values).faulty_rows == {1, 3}
    assert StepLogits(torch.full((1, 8), -torch.inf)).faulty_rows == {0}
    assert StepLogits(torch.empty(0, 8)).faulty_rows == set()


def test_a_greedy_step_takes_one_copy_of_two_numbers_a_row(on_device):
    logits = on_device(torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 1.0]]))
    assert [logits.likeliest(row) for row in (0, 1)] == [1, 0]
    assert CountedTensor.num_copies == 1


def test_rows_come_together_and_once(on_device):
    values = torch.randn(6, 50)
    logits = on_device(values)
    logits.fetch(iter([4, 1, 4]))
    assert CountedTensor.num_copies == 2
    assert logits[1].tolist() == values[1].tolist()
    assert logits[4].tolist() == values[4].tolist()
    logits.fetch([1, 4])
    logits.fetch([])
    assert CountedTensor.num_copies == 2
    assert logits[0].tolist() == values[0].tolist()
    assert CountedTensor.num_copies == 3


def test_on_the_host_a_row_is_no_copy():
    values = torch.randn(2, 50)
    logits = StepLogits(values)
    assert logits[1].ctypes.data == values[1].data_ptr()
