"""What is read of logits that lie on a device is what would be read of them on the host."""

import torch

from paged_chat.engine.step_logits import StepLogits


def test_peaks_faults_and_rows_are_those_of_the_host():
    values = torch.randn(9, 50_000, generator=torch.Generator().manual_seed(0))
    values[2, 7], values[5, 49_999] = torch.nan, torch.inf
    values[3, [11, 40_000]] = 100.0
    here, there = StepLogits(values), StepLogits(values.cuda())
    assert there.faulty_rows == here.faulty_rows == {2, 5}
    assert [there.likeliest(row) for row in range(9)] == [here.likeliest(row) for row in range(9)]
    assert there.likeliest(3) == 11
    there.fetch([8, 1])
    for row in (0, 1, 8):
        assert there[row].tolist() == here[row].tolist()
