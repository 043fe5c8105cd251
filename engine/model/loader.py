"""A model ready to compute: found, read, checked, in the wanted dtype on the wanted device."""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import xxhash
from torch import Tensor

from ...kernels import Backend
from ..compiled_kernels import keep_compiled_kernels
from ..config import EngineConfig
from ..errors import InvalidParameter
from ..progress import LoadProgress, OnProgress, ignore_progress
from ..shared_runs import SharingRule
from . import compute
from .catalog import ModelSource, resolve
from .config import ModelConfig
from .decoder import Decoder
from .fields import read_json
from .gguf import GgufSource, mostly_four_bits
from .gguf_config import config_from_gguf
from .gguf_file import GgufFile
from .hf_config import config_from_hf
from .memory import check_fits
from .packed_arrays import PackedArrays
from .packed_decoder import PackedDecoder, can_round_prompts
from .packed_weights import fits_packed, from_tensors, pack_weights, packed_tensors
from .path_choice import ModelPaths, choose_crossover, choose_paths, choose_sharing
from .prepared import PreparedFile, PreparedTensor
from .safetensors import SafetensorsSource, weight_files
from .tiled_decoder import MIN_TILED_ROWS, SHARED_TERMS, TiledDecoder, fits_tiled
from .weights import DecoderWeights, TensorSource, check_tensors, fuse, fused_tensors

# Rotary tables begin with so many positions (8 MiB with heads of 64 features).
FIRST_POSITIONS = 32768


ON_A_GPU = SharingRule(min_rows=4, min_blocks=64)
"""Not measured: where what is shared is far more than what each has of its own, and a group fills a tile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """What the engine runs.

    fingerprint: of the weights and all that they are computed with; other weights under the same name differ in it.
    tokenizer_source: the folder in Hugging Face layout, or the `.gguf` file, that the tokenizer is read from.
    context_window: tokens that prompt and reply may have together.
    weights: "dense", "int8" or "int4".
    sharing: when blocks that sequences share are read once for all of them; None for never.
    """

    name: str
    model_config: ModelConfig
    decoder: Decoder | PackedDecoder
    sharing: SharingRule | None
    backend: Backend
    device: torch.device
    dtype: torch.dtype
    weights: str
    fingerprint: bytes
    tokenizer_source: Path
    context_window: int


def load_model(config: EngineConfig, on_progress: OnProgress = ignore_progress) -> LoadedModel:
    """Loads `config.model`, fetching it first where that is needed.

    Raises ModelNotFound, ModelUnsupported, ModelFileInvalid, DownloadFailed, OutOfMemory, and InvalidParameter for a
    device, kernels or weights that this machine or model doesn't allow.
    """
    keep_compiled_kernels()
    chosen = compute.choose_compute(config)
    device, dtype, backend = chosen.device, chosen.dtype, chosen.backend
    source = resolve(config.model, on_progress)
    model = OpenedModel.open(source)
    weights = choose_weights(config, model, backend.name)
    if weights != "dense" and config.dtype == "auto":
        # Of the cache alone, which is then half as large: packed steps widen its numbers while they read.
        dtype = torch.bfloat16
    window = min(config.max_model_len or model.config.max_position, model.config.max_position)
    num_positions = min(window, FIRST_POSITIONS)
    paths = _choose_paths(config, model, weights, dtype, backend, on_progress)
    dense, packed = None, None
    sharing = ON_A_GPU if backend.name == "triton" else None
    if paths.uses_dense:
        dense_weights = DecoderWeights.from_tensors(model.config, _dense_tensors(model, dtype, device, on_progress))
        dense = Decoder(model.config, dense_weights, paths.backend, num_positions)
    if paths.bits is not None:
        packed_weights = from_tensors(paths.bits, _packed_tensors(model, paths.bits, on_progress))
        arrays = PackedArrays(model.config, packed_weights, num_positions)
        if paths.uses_tiles:
            tiled = TiledDecoder(model.config, arrays, dtype)
            packed = PackedDecoder(model.config, arrays, dtype, tiled, MIN_TILED_ROWS, SHARED_TERMS)
        elif dense is not None:
            crossover = choose_crossover(model.config, packed_weights, dense, dtype, on_progress)
            packed = PackedDecoder(model.config, arrays, dtype, dense, crossover)
        else:
            packed = PackedDecoder(model.config, arrays, dtype, rounds_prompts=paths.rounds_prompts)
        shared_terms = SHARED_TERMS if paths.uses_tiles else 0
        sharing = choose_sharing(model.config, packed_weights, dtype, paths.backend, shared_terms, on_progress)
    decoder = packed or dense
    assert decoder is not None
    return LoadedModel(
        name=source.name,
        model_config=model.config,
        decoder=decoder,
        sharing=sharing,
        backend=paths.backend,
        device=device,
        dtype=dtype,
        weights="dense" if paths.bits is None else weights,
        fingerprint=model.fingerprint(),
        tokenizer_source=source.path,
        context_window=window,
    )


class OpenedModel:
    """A model's files, their configuration read and nothing else yet."""

    def __init__(
        self, source: ModelSource, config: ModelConfig, files: tuple[Path, ...], gguf: GgufFile | None = None
    ) -> None:
        self.source = source
        self._gguf = gguf
        self.config = config
        self.files = files
        self.fused = fused_tensors(config)
        self.digest: str | None = None  # of the weights, where a prepared file remembers it

    @classmethod
    def open(cls, source: ModelSource) -> "OpenedModel":
        if source.kind == "gguf":
            gguf = GgufFile(source.path)
            return cls(source, config_from_gguf(gguf), (source.path,), gguf)
        generation_file = source.path / "generation_config.json"
        generation = read_json(generation_file) if generation_file.is_file() else None
        config = config_from_hf(read_json(source.path / "config.json"), generation)
        return cls(source, config, tuple(weight_files(source.path)))

    def tensors(self) -> TensorSource:
        """Checked to hold what the decoder needs, and nothing that it would leave out."""
        folder = self.source.path
        opened: TensorSource
        opened = SafetensorsSource(folder) if self._gguf is None else GgufSource(self._gguf, self.config)
        check_tensors(opened, self.fused)
        return opened

    def has_four_bits(self) -> bool:
        """Whether most of its weights were stored in 4 bits, so that 4 bits lose nothing more."""
        return self._gguf is not None and mostly_four_bits(self._gguf)

    def fingerprint(self) -> bytes:
        return fingerprint(self.config, self.digest or digest(list(self.files)))


def choose_weights(config: EngineConfig, model: OpenedModel, backend_name: str) -> str:
    """How the linear layers are stored: "dense", "int8" or "int4".

    "auto" packs on a CPU, in as many bits as the file's own, unless a dtype was asked for.
    Raises InvalidParameter where packed weights were asked for and can't be had.
    """
    can_pack = backend_name == "cpu" and fits_packed(model.config, config.block_size)
    if config.weights in ("int8", "int4") and not can_pack:
        raise InvalidParameter(
            f"weights={config.weights!r} need the cpu kernels, a block_size of 16, and widths of the model that are "
            f"multiples of 32 (heads: of 16): choose weights='dense' for {model.source.name}"
        )
    if config.weights != "auto":
        return config.weights
    if not can_pack or config.dtype != "auto":
        return "dense"
    return "int4" if model.has_four_bits() else "int8"


def _choose_paths(
    config: EngineConfig,
    model: OpenedModel,
    weights: str,
    dtype: torch.dtype,
    backend: Backend,
    on_progress: OnProgress,
) -> ModelPaths:
    """Those whose results differ with the number of rows only where none were promised to be exact.

    Raises InvalidParameter where packed weights were asked for by name and this machine computes them wrongly.
    """
    bits = {"dense": None, "int4": 4, "int8": 8}[weights]
    may_round = bits is not None and config.weights == "auto" and dtype == torch.bfloat16
    uses_tiles = may_round and fits_tiled(model.config, dtype)
    rounds_prompts = may_round and not uses_tiles and can_round_prompts(dtype)
    wants_dense = may_round and not uses_tiles and not rounds_prompts and compute.cpu_multiplies_bfloat16()
    wished = ModelPaths(bits, rounds_prompts, uses_tiles, bits is None or wants_dense, backend)
    paths = choose_paths(wished, model.config, dtype, on_progress)
    if paths.bits is None and config.weights in ("int4", "int8"):
        raise InvalidParameter(
            f"weights={config.weights!r} come out wrong on this processor, as paged-chat doctor shows: "
            "choose weights='auto' or 'dense'"
        )
    return paths


def _dense_tensors(
    model: OpenedModel, dtype: torch.dtype, device: torch.device, on_progress: OnProgress
) -> dict[str, Tensor]:
    num_bytes = sum(tensor.num_elements for tensor in model.fused) * dtype.itemsize
    check_fits(f"the model {model.source.name}", num_bytes, device)
    if model.source.kind == "gguf":
        specs = tuple(PreparedTensor(tensor.name, tensor.shape, dtype) for tensor in model.fused)
        form = f"dense-{str(dtype).removeprefix('torch.')}"
        file = PreparedFile(model.source.path, model.files, form, specs)

        def fuse_once() -> Iterator[Tensor]:  # opens the source only where there is no prepared file yet
            yield from (value for _, value in fuse(model.tensors(), model.fused, dtype))

        if (prepared := _prepared(model, file, fuse_once(), on_progress)) is not None:
            on_progress(LoadProgress("load", num_bytes, num_bytes))
            return {name: value.to(device) for name, value in prepared.items()}
    # Other files map as they are, and joining q, k and v costs less than reading them.
    tensors, done = {}, 0
    for tensor, value in fuse(model.tensors(), model.fused, dtype):
        tensors[tensor.name] = value.to(device)
        done += value.nbytes
        on_progress(LoadProgress("load", done, num_bytes))
    return tensors


def _packed_tensors(model: OpenedModel, bits: int, on_progress: OnProgress) -> dict[str, Tensor]:
    specs = packed_tensors(model.config, bits)
    file = PreparedFile(model.source.path, model.files, f"packed-int{bits}", specs)
    check_fits(f"the model {model.source.name}", file.num_bytes, torch.device("cpu"))
    packed: dict[str, Tensor] = {}

    def pack_once() -> Iterator[Tensor]:
        packed.update(pack_weights(model.config, bits, fuse(model.tensors(), model.fused, torch.float32), on_progress))
        yield from (packed[spec.name] for spec in specs)

    prepared = _prepared(model, file, pack_once(), on_progress)
    return prepared or packed or dict(zip((spec.name for spec in specs), pack_once(), strict=True))


def _prepared(
    model: OpenedModel, file: PreparedFile, values: Iterator[Tensor], on_progress: OnProgress
) -> dict[str, Tensor] | None:
    """The prepared file's tensors, made from `values` where there is none; None where it can't be kept."""
    opened = file.open()
    if opened is None:
        source_digest = digest(list(model.files))
        opened = file.open() if file.write(source_digest, values, on_progress) else None
    if opened is None:
        return None
    model.digest = opened.source_digest
    return opened.tensors


def digest(files: list[Path]) -> str:
    """xxh3_128 over the bytes of weight files."""
    hashed = xxhash.xxh3_128()
    for path in files:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            hashed.update(mapped)
    return hashed.hexdigest()


def fingerprint(model_config: ModelConfig, source_digest: str) -> bytes:  # 16 bytes
    """Of the weights and of the configuration, without which the same weights mean something else."""
    return xxhash.xxh3_128_digest(f"{source_digest} {model_config!r}".encode())
