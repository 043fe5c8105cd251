"""Each kernel of a backend against the reference, on this very machine: how far off, and how fast."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels import Backend, choose_backend
from .compiled_kernels import keep_compiled_kernels
from .config import EngineConfig
from .kernel_bandwidth import copy_gb_per_s, gb_per_s
from .kernel_cases import HEADS, KernelCase, kernel_cases
from .model.compute import choose_compute
from .model.config import ModelConfig, RopeConfig
from .model.packed_decoder import can_round_prompts
from .model.path_check import TOLERANCES, PathName, check_path
from .model.tiled_decoder import fits_tiled

TIMED_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCheck:
    """One kernel on one shape; `fault` is what it raised, and then there is no error or time.

    On a GPU, where a kernel only waits for memory: how fast it reads, and how fast the device copies (10^9 bytes a
    second), measured one after the other.
    """

    kernel: str
    shape: str
    tolerance: float
    relative_error: float | None = None
    time_ms: float | None = None
    reference_ms: float | None = None
    gb_per_s: float | None = None
    copy_gb_per_s: float | None = None
    fault: str | None = None

    @property
    def passed(self) -> bool:
        # A NaN compares false, and so fails.
        return self.relative_error is not None and self.relative_error <= self.tolerance


def check_kernels(config: EngineConfig) -> Iterator[KernelCheck]:
    """Runs every kernel that `config` would use.

    Raises InvalidParameter for a device or kernels that this machine doesn't have.
    """
    keep_compiled_kernels()
    compute = choose_compute(config)
    device, dtype, backend = compute.device, compute.dtype, compute.backend
    reference = choose_backend("reference", device)
    for case in kernel_cases(backend, device, dtype):
        # Kernels start on the current device. Not held while the caller has the last check.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            check = _check(case, backend, reference, device, TOLERANCES[dtype])
        yield check
    if backend.name == "cpu":
        yield from _check_whole_steps(dtype)


def _check_whole_steps(dtype: torch.dtype) -> Iterator[KernelCheck]:
    """The steps of packed weights, which are one kernel each."""
    num_heads, num_kv_heads, head_dim = HEADS[0]
    config = ModelConfig(
        family="llama",
        vocab_size=1,
        hidden_size=num_heads * head_dim,
        intermediate_size=1,
        num_layers=1,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=1e-5,
        max_position=1,
        tie_embeddings=True,
        attention_bias=False,
        output_bias=False,
        mlp_bias=False,
        qk_norm=False,
        windows=(None,),
        nope=(False,),
        rope=RopeConfig(),
        eos_token_ids=(),
    )
    paths: dict[PathName, tuple[int, ...]] = {"packed step": (4, 8)}
    if can_round_prompts(dtype):
        paths["rounded prompts"] = (4, 8)
    if fits_tiled(config, dtype):
        paths["matrix tiles"] = (4, 8)
    for path, every_bits in paths.items():
        for bits in every_bits:
            check = check_path(path, config, dtype, bits)
            yield KernelCheck(
                kernel=path,
                shape=check.shape,
                tolerance=check.tolerance,
                relative_error=check.relative_error,
                time_ms=check.time_ms,
                reference_ms=check.reference_ms,
                fault=check.fault,
            )


def _check(
    case: KernelCase, backend: Backend, reference: Backend, device: torch.device, tolerance: float
) -> KernelCheck:
    expected, reference_ms = _run(case, reference, device)
    try:
        result, time_ms = _run(case, backend, device)
        speed, copy_speed = _bandwidth(case, backend, device)
    except Exception as error:  # whatever a broken kernel raises is what this reports
        fault = f"{type(error).__name__}: {error}"
        return KernelCheck(kernel=case.kernel, shape=case.shape, tolerance=tolerance, fault=fault)
    difference = (result.double() - expected.double()).abs().max().item()
    return KernelCheck(
        kernel=case.kernel,
        shape=case.shape,
        tolerance=tolerance,
        relative_error=difference / max(1.0, expected.double().abs().max().item()),
        time_ms=time_ms,
        reference_ms=reference_ms,
        gb_per_s=speed,
        copy_gb_per_s=copy_speed,
    )


def _run(case: KernelCase, backend: Backend, device: torch.device) -> tuple[Tensor, float]:
    """The result of the first call, and the milliseconds of the fastest of some more."""
    call, result = case.prepare(backend)
    call()
    first = result().clone()
    times = []
    for _ in range(TIMED_RUNS):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - start) * 1e3)
    return first, min(times)


def _bandwidth(case: KernelCase, backend: Backend, device: torch.device) -> tuple[float | None, float | None]:
    if case.num_bytes is None or device.type != "cuda":
        return None, None
    call, _ = case.prepare(backend)
    return gb_per_s(case.num_bytes, call, device), copy_gb_per_s(device)
