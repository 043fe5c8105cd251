"""Decoding through CUDA graphs: a step of one token a sequence, recorded once for each size and replayed.

At small batches a step is hundreds of short kernels, and launching them takes longer than running them. A graph is
launched as one. It is bound to its shapes and addresses, so:

- Rows come in buckets (1, 2, 4, 8, then multiples of 8), and so do the columns of the block tables (powers of two:
  decode attention's grid spans them). Each pair of buckets is recorded when it is first met.
- A step's arrays are copied into inputs that stay where they are. They travel as one copy, from a staging buffer of
  the step's own: the buffer of the step before may still be read.
- Rows behind the batch are padding: position 0, slot 0 (in the null block), a context of 0 tokens. They write into the
  null block alone and read nothing.
- All graphs share one pool of memory, and leave their logits in one tensor that the next replay overwrites.

A graph is recorded over padding alone, so recording touches no sequence; what runs before it compiles the kernels.
Steps with prefills have too many shapes, and enough work to hide their launches: they don't come here.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batch import Batch
from .decoder import DecoderInput

logger = logging.getLogger(__name__)

MAX_ROWS = 512  # from here on the work hides the launches
ALIGNMENT = 16  # bytes; Triton compiles another kernel for pointers that are less aligned

Forward = Callable[[DecoderInput], Tensor]
"""A batch's inputs -> float32 logits [num_logits, vocab]."""


class Capture(Protocol):
    """Records what a function does on the device, without doing it; the result replays that."""

    def __call__(self, run: Callable[[], object]) -> Callable[[], object]: ...


def choose_capture(device: torch.device, backend_name: str) -> Capture | None:
    """How decodes are recorded on this device; None where they aren't: nothing in a recording may wait for the device.

    The reference kernels do wait, and a processor launches nothing.
    """
    return CudaCapture(device) if device.type == "cuda" and backend_name == "triton" else None


def row_bucket(num_rows: int) -> int:
    """Rows of the smallest graph that holds so many."""
    return 1 << (num_rows - 1).bit_length() if num_rows <= 8 else -(-num_rows // 8) * 8


def column_bucket(num_columns: int) -> int:
    """Columns of the block tables of the smallest graph that holds so many."""
    return 1 << (max(num_columns, 1) - 1).bit_length()


@dataclass(frozen=True, slots=True)
class _Bucket:
    rows: int
    columns: int


class StaticInputs:
    """One bucket's inputs, all in one piece of memory that is overwritten step by step."""

    def __init__(self, num_rows: int, num_columns: int, device: torch.device) -> None:
        self._shapes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
            "input_ids": (torch.int64, (num_rows,)),
            "positions": (torch.int64, (num_rows,)),
            "slot_mapping": (torch.int64, (num_rows,)),
            "block_tables": (torch.int32, (num_rows, num_columns)),
            "context_lens": (torch.int32, (num_rows,)),
        }
        self._offsets: dict[str, int] = {}
        num_bytes = 0
        for name, (dtype, shape) in self._shapes.items():
            self._offsets[name] = num_bytes
            num_bytes += -(-dtype.itemsize * int(np.prod(shape)) // ALIGNMENT) * ALIGNMENT
        # Zeros are padding in every one of the arrays.
        self._memory = torch.zeros(num_bytes, dtype=torch.uint8, device=device)

    def tensors(self, block_size: int) -> DecoderInput:
        """The views that a graph reads: every row decodes, every row's logits are wanted."""
        views = self._views(self._memory)
        num_rows, num_columns = views["block_tables"].shape
        return DecoderInput(
            input_ids=views["input_ids"],
            positions=views["positions"],
            slot_mapping=views["slot_mapping"],
            block_tables=views["block_tables"],
            context_lens=views["context_lens"],
            cu_seqlens_q=torch.zeros(1, dtype=torch.int32, device=self._memory.device),
            logits_rows=torch.arange(num_rows, device=self._memory.device),
            num_decodes=num_rows,
            max_query_len=0,
            max_context_len=num_columns * block_size,  # of any context that the tables can hold
        )

    def fill(self, batch: Batch) -> None:
        """Takes over a batch of decodes that fits, with padding behind it."""
        # Memory that a copy still reads isn't handed out again, so the next step's buffer is another one.
        is_cuda = self._memory.device.type == "cuda"
        staging = torch.zeros(self._memory.shape, dtype=torch.uint8, pin_memory=is_cuda)
        for name, view in self._views(staging).items():
            array: NDArray[np.int64] | NDArray[np.int32] = getattr(batch, name)
            # Tables may be wider than what their contexts have come to need.
            needed = array[tuple(slice(length) for length in view.shape)]
            view.numpy()[tuple(slice(length) for length in needed.shape)] = needed
        self._memory.copy_(staging, non_blocking=is_cuda)

    def _views(self, memory: Tensor) -> dict[str, Tensor]:
        views = {}
        for name, (dtype, shape) in self._shapes.items():
            start = self._offsets[name]
            num_bytes = dtype.itemsize * int(np.prod(shape))
            views[name] = memory[start : start + num_bytes].view(dtype).view(shape)
        return views


@dataclass(frozen=True, slots=True)
class _Graph:
    """One bucket's recording, and all that it reads and writes by address."""

    inputs: StaticInputs
    tensors: DecoderInput  # of `inputs`, and of its own what no step changes
    replay: Callable[[], object]
    logits: Tensor  # [rows, vocab] float32, shared with the other graphs
    kept: tuple[Tensor, ...]


class GraphedDecoder:
    """Runs batches of decodes through graphs; gives None where the caller must run a batch itself.

    Always: a graph's addresses are alive as long as it is, for a recording holds no tensor. Its inputs are its own, and
    kept with it; so are the rotary tables, which grow with the longest context seen (`kept_alive` says which tensors
    may be replaced elsewhere).
    """

    def __init__(
        self,
        forward: Forward,
        capture: Capture,
        device: torch.device,
        block_size: int,
        kept_alive: Callable[[], tuple[Tensor, ...]] = tuple,
    ) -> None:
        self._forward = forward
        self._capture = capture
        self._device = device
        self._block_size = block_size
        self._kept_alive = kept_alive
        self._graphs: dict[_Bucket, _Graph] = {}
        self._logits: Tensor | None = None
        self._failed = False

    @property
    def num_graphs(self) -> int:
        return len(self._graphs)

    def run(self, batch: Batch) -> Tensor | None:
        """float32 logits [num_logits, vocab] in memory of their own; the batch's copies are the caller's to do before.

        A recording that fails is logged, and from then on nothing is recorded or replayed.
        """
        num_rows = len(batch.input_ids)
        if self._failed or batch.num_decodes != num_rows or not 0 < num_rows <= MAX_ROWS:
            return None
        num_columns = -(-int(batch.context_lens.max()) // self._block_size)
        bucket = _Bucket(row_bucket(num_rows), column_bucket(num_columns))
        graph = self._graphs.get(bucket)
        if graph is None:
            try:
                graph = self._graphs[bucket] = self._record(bucket)
            except Exception as error:  # whatever the driver or a kernel raises, the steps can run without graphs
                self._failed = True
                self._graphs.clear()
                logger.warning(
                    "decoding without CUDA graphs: recording %d rows x %d blocks failed: %s: %s",
                    bucket.rows,
                    bucket.columns,
                    type(error).__name__,
                    error,
                )
                return None
        graph.inputs.fill(batch)
        graph.replay()
        # By index where some rows' logits aren't wanted; a copy either way, as the next replay overwrites them.
        if len(batch.logits_rows) == num_rows:
            return graph.logits[:num_rows].clone()
        return graph.logits[torch.from_numpy(batch.logits_rows).to(self._device)]

    def _record(self, bucket: _Bucket) -> _Graph:
        inputs = StaticInputs(bucket.rows, bucket.columns, self._device)
        tensors = inputs.tensors(self._block_size)
        # Once as it is: compiles the kernels, and lets the rotary tables grow to all that this bucket can hold.
        logits = self._shared_logits(self._forward(tensors))
        return _Graph(
            inputs=inputs,
            tensors=tensors,
            replay=self._capture(lambda: logits.copy_(self._forward(tensors))),
            logits=logits,
            kept=self._kept_alive(),
        )

    def _shared_logits(self, sample: Tensor) -> Tensor:
        """Where a graph leaves logits of this shape. A larger tensor replaces the last; older graphs keep theirs."""
        num_rows, vocab_size = sample.shape
        if self._logits is None or len(self._logits) < num_rows:
            rows = 1 << (num_rows - 1).bit_length()
            self._logits = torch.empty((rows, vocab_size), dtype=sample.dtype, device=sample.device)
        return self._logits[:num_rows]


class CudaCapture:
    """Records CUDA graphs that share one pool of memory: only one runs at a time, and keeps nothing for the next."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], object]) -> Callable[[], object]:
        # Libraries keep workspaces for each stream: they are made here, outside the graph's own memory.
        before = torch.cuda.current_stream()
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):
            run()
        before.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads may use the device meanwhile: what they do doesn't concern this recording.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                run()
        finally:
            torch.cuda.set_stream(before)  # a recording that fails leaves its own stream as the current one
        return graph.replay
