"""Which rows of a step are coarse, and the spans that its products are cut into."""

import numpy as np

from paged_chat.kernels.cpu.row_spans import EXACT_TAIL, SPAN_BYTES, chunks_within, coarse_prompts, exact_rows
from paged_chat.kernels.cpu.tile_rows import MOST_ROWS

ALL = np.array([0, 1, 2])


def prompts(*counts, first_row=0, num_columns=64):
    return coarse_prompts(np.array(counts), first_row, num_columns)


def test_all_but_the_last_rows_of_a_prompt_are_coarse_in_whole_groups():
    assert (EXACT_TAIL, MOST_ROWS) == (16, 8)
    found = prompts(66)
    assert found.spans.tolist() == [[0, 48, 18]]
    assert found.are_coarse.tolist() == [True] * 48 + [False] * 18
    assert prompts(16).spans.tolist() == [[0, 0, 16]]
    assert prompts(24).spans.tolist() == [[0, 8, 16]]


def test_rows_that_decode_come_first_and_each_prompt_has_a_tail():
    found = prompts(40, 3, 32, first_row=5)
    assert found.spans.tolist() == [[0, 0, 5], [5, 24, 16], [45, 0, 3], [48, 16, 16]]
    assert np.flatnonzero(found.are_coarse).tolist() == [*range(5, 29), *range(48, 64)]


def test_a_long_prompt_is_cut_where_its_activations_fill_the_cache():
    columns = SPAN_BYTES // 256
    assert prompts(600, num_columns=columns).spans.tolist() == [[0, 256, 0], [256, 256, 0], [512, 72, 16]]
    assert prompts(256 + 16, num_columns=columns).spans.tolist() == [[0, 256, 16]]
    # A wide model's rows are more than fit: the weights are read anew for 64 of them at least.
    assert prompts(200, num_columns=SPAN_BYTES).spans.tolist() == [[0, 64, 0], [64, 64, 0], [128, 56, 16]]


def test_the_last_layer_leaves_coarse_rows_out_unless_their_logits_are_wanted():
    found = prompts(600, 40, first_row=2, num_columns=SPAN_BYTES // 256)
    assert found.last_spans(np.array([0, 1, 601, 641])).tolist() == [[0, 0, 2], [586, 0, 16], [626, 0, 16]]
    assert found.last_spans(np.array([0, 300])) is found.spans
    assert exact_rows(7).last_spans(ALL).tolist() == [[0, 0, 7]]
    assert exact_rows(0).last_spans(ALL[:0]).tolist() == []


def test_chunks_with_a_row_that_is_left_are_kept():
    chunks = np.array([[2, 10], [12, 10], [22, 10], [32, 8], [40, 4]])
    assert chunks_within(chunks, np.array([[0, 0, 2], [25, 0, 3], [40, 4, 0]])).tolist() == [[22, 10], [40, 4]]
    assert chunks_within(chunks, np.array([[11, 0, 2]])).tolist() == [[2, 10], [12, 10]]
    assert chunks_within(chunks[:0], np.array([[0, 0, 9]])).shape == (0, 2)
