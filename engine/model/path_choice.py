"""Which ways to compute serve a model on this machine: the fastest of those that give what the reference gives.

Each is checked once for a processor, our kernels and the versions below them (path_check.py), and the finding is kept.
"""

import logging
from dataclasses import dataclass, replace

import torch

from paged_chat.kernels.cpu.machine import identity
from paged_chat.kernels.cpu.team import default_threads

from ...kernels import Backend, choose_backend
from ..progress import LoadProgress, OnProgress
from ..shared_runs import SharingRule
from .config import ModelConfig
from .crossover import CANDIDATES, NEVER_FASTER, measure_crossover
from .decoder import Decoder
from .machine_record import MachineRecord
from .packed_decoder import MAX_PACKED_ROWS
from .packed_weights import PackedWeights
from .path_check import PathCheck, PathName, check_path, describe
from .sharing_trial import USUAL, measure_sharing, rule_of

logger = logging.getLogger(__name__)

INSTEAD: dict[PathName, str] = {
    "packed step": "dense weights serve instead, which are slower",
    "rounded prompts": "long prompts are computed exactly instead, which is slower",
    "matrix tiles": "long prompts are computed without them, which is slower",
    "dense step": "slower kernels serve instead",
}


@dataclass(frozen=True, slots=True)
class ModelPaths:
    """The ways to compute one model: packed weights in 4 or 8 bits, matrix tiles beside them, dense weights.

    With packed weights, matrix tiles or dense ones take the steps of many rows, or they round these themselves.
    """

    bits: int | None
    rounds_prompts: bool
    uses_tiles: bool
    uses_dense: bool
    backend: Backend


def choose_paths(wished: ModelPaths, config: ModelConfig, dtype: torch.dtype, on_progress: OnProgress) -> ModelPaths:
    """`wished`, but for what gives wrong results here."""
    if wished.backend.name != "cpu":
        return wished
    paths = wished
    if paths.bits is not None and not _is_trusted("packed step", config, dtype, paths.bits, on_progress):
        paths = replace(paths, bits=None, rounds_prompts=False, uses_tiles=False, uses_dense=True)
    if paths.rounds_prompts and not _is_trusted("rounded prompts", config, dtype, paths.bits, on_progress):
        paths = replace(paths, rounds_prompts=False)
    if paths.uses_tiles and not _is_trusted("matrix tiles", config, dtype, paths.bits, on_progress):
        paths = replace(paths, uses_tiles=False, uses_dense=True)
    if paths.uses_dense and not _is_trusted("dense step", config, dtype, None, on_progress):
        if paths.bits is not None:
            return replace(paths, uses_dense=False)
        return replace(paths, backend=choose_backend("reference", torch.device("cpu")))
    return paths


def choose_crossover(
    config: ModelConfig, packed_weights: PackedWeights, dense: Decoder, dtype: torch.dtype, on_progress: OnProgress
) -> int:
    """Rows of a step from which on dense weights take it from packed ones, as measured here or before."""
    record = _record()
    key = _measured_for(config, packed_weights, dtype)
    if key not in record.crossovers:
        on_progress(LoadProgress("warm up", 0, None))
        measured = measure_crossover(config, packed_weights, dense, dtype)
        if measured is None:
            return MAX_PACKED_ROWS + 1
        record.crossovers[key] = measured
        record.save()
    return min(max(record.crossovers[key], CANDIDATES[0]), NEVER_FASTER)


def choose_sharing(
    config: ModelConfig,
    packed_weights: PackedWeights,
    dtype: torch.dtype,
    backend: Backend,
    shared_terms: int,
    on_progress: OnProgress,
) -> SharingRule | None:
    """When blocks that rows share are read once, as measured here or before; None for never. `shared_terms`: of
    `PackedDecoder`."""
    record = _record()
    uses_tiles = shared_terms > 0
    key = f"{_measured_for(config, packed_weights, dtype)}, by {'tiles' if uses_tiles else 'vectors'}"
    found = record.sharing.get(key) or _found_sharing.get(record.identity + key)
    if found is None:
        on_progress(LoadProgress("warm up", 0, None))
        found = measure_sharing(config, packed_weights, dtype, backend, shared_terms)
        if found is None:
            return rule_of(USUAL, uses_tiles=uses_tiles)
        _found_sharing[record.identity + key] = record.sharing[key] = found
        record.save()
    return rule_of(found, uses_tiles=uses_tiles)


def _measured_for(config: ModelConfig, packed_weights: PackedWeights, dtype: torch.dtype) -> str:
    widths = f"{config.hidden_size} {config.query_width} {config.kv_width} {config.intermediate_size}"
    return f"{describe(config, dtype, packed_weights.bits)}, widths {widths}, {default_threads()} threads"


def known_checks() -> list[PathCheck]:
    """What was found out on this machine before now, with these kernels and versions."""
    return list(_record().checks.values())


def sentence(check: PathCheck) -> str:
    """What is wrong with a path that didn't pass, and what happens."""
    return f"{check}: {INSTEAD[check.path]}"


_found: dict[str, PathCheck] = {}  # by this process, which may be unable to keep it
_found_sharing: dict[str, tuple[int, int]] = {}


def _is_trusted(
    path: PathName, config: ModelConfig, dtype: torch.dtype, bits: int | None, on_progress: OnProgress
) -> bool:
    record = _record()
    key = f"{path}: {describe(config, dtype, bits)}, {_variant(config)}"
    check = record.checks.get(key)
    if check is None:
        check = _found.get(record.identity + key)
        if check is None:
            on_progress(LoadProgress("warm up", 0, None))  # compiles what a first start compiles anyway
            check = _found[record.identity + key] = check_path(path, config, dtype, bits or 0)
        record.checks[key] = check
        record.save()
    if not check.passed:
        logger.warning("%s", sentence(check))
    return check.passed


def _variant(config: ModelConfig) -> str:
    """What else decides which code runs, beside heads and numbers."""
    parts = {
        "biases": config.attention_bias or config.output_bias or config.mlp_bias,
        "head norms": config.qk_norm,
        "windows": any(config.windows),
        "no positions": any(config.nope),
    }
    return " ".join([config.rope.kind, *(name for name, is_there in parts.items() if is_there)])


def _record() -> MachineRecord:
    return MachineRecord.load(identity())
