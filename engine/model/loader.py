"""A model ready to compute: found, read, checked, in the wanted dtype on the wanted device."""

import mmap
from dataclasses import dataclass
from pathlib import Path

import torch
import xxhash

from ...kernels import Backend, choose_backend
from ..config import EngineConfig
from ..errors import InvalidParameter
from ..progress import LoadProgress, OnProgress, ignore_progress
from .catalog import ModelSource, resolve
from .config import ModelConfig
from .decoder import Decoder
from .fields import read_json
from .gguf import GgufSource
from .gguf_config import config_from_gguf
from .gguf_file import GgufFile
from .hf_config import config_from_hf
from .memory import check_fits
from .prepared import open_prepared, write_prepared
from .safetensors import SafetensorsSource, weight_files
from .weights import DecoderWeights, FusedTensor, TensorSource, check_tensors, fuse, fused_tensors

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# Rotary tables begin with so many positions (8 MiB with heads of 64 features).
FIRST_POSITIONS = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """What the engine runs.

    fingerprint: of the weights and all that they are computed with; other weights under the same name differ in it.
    tokenizer_source: the folder in Hugging Face layout, or the `.gguf` file, that the tokenizer is read from.
    context_window: tokens that prompt and reply may have together.
    """

    name: str
    model_config: ModelConfig
    decoder: Decoder
    backend: Backend
    device: torch.device
    dtype: torch.dtype
    fingerprint: bytes
    tokenizer_source: Path
    context_window: int


def load_model(config: EngineConfig, on_progress: OnProgress = ignore_progress) -> LoadedModel:
    """Loads `config.model`, fetching it first where that is needed.

    Raises ModelNotFound, ModelUnsupported, ModelFileInvalid, DownloadFailed, OutOfMemory, and InvalidParameter for a
    device or kernels that this machine doesn't have.
    """
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    try:
        backend = choose_backend(config.kernels, device)
    except ValueError as error:
        raise InvalidParameter(str(error)) from error
    source = resolve(config.model, on_progress)
    load = _load_folder if source.kind == "folder" else _load_gguf
    model_config, weights, weights_fingerprint = load(source, dtype, device, on_progress)
    window = min(config.max_model_len or model_config.max_position, model_config.max_position)
    return LoadedModel(
        name=source.name,
        model_config=model_config,
        decoder=Decoder(model_config, weights, backend, num_positions=min(window, FIRST_POSITIONS)),
        backend=backend,
        device=device,
        dtype=dtype,
        fingerprint=weights_fingerprint,
        tokenizer_source=source.path,
        context_window=window,
    )


def choose_device(name: str) -> torch.device:
    """Raises InvalidParameter where the device isn't there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidParameter(f"device {name!r} isn't there: torch sees {torch.cuda.device_count()} CUDA devices")
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """ "auto" is bfloat16 on GPUs, and on processors that multiply it in hardware; float32 elsewhere."""
    if name != "auto":
        return DTYPES[name]
    return torch.bfloat16 if device.type == "cuda" or _cpu_multiplies_bfloat16() else torch.float32


def _cpu_multiplies_bfloat16() -> bool:
    # Torch's names for this are private: one that is gone counts as a processor without it, which is only slower.
    checks = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(check() for check in checks if check is not None)


def _load_folder(
    source: ModelSource, dtype: torch.dtype, device: torch.device, on_progress: OnProgress
) -> tuple[ModelConfig, DecoderWeights, bytes]:
    generation_file = source.path / "generation_config.json"
    model_config = config_from_hf(
        read_json(source.path / "config.json"), read_json(generation_file) if generation_file.is_file() else None
    )
    tensors = SafetensorsSource(source.path)
    fused = fused_tensors(model_config)
    check_tensors(tensors, fused)
    _check_memory(source, fused, dtype, device)
    # Nothing is prepared: these files map as they are, and joining q, k and v costs less than reading them.
    weights = _fused_on(device, model_config, tensors, fused, dtype, on_progress)
    return model_config, weights, fingerprint(model_config, digest(weight_files(source.path)))


def _load_gguf(
    source: ModelSource, dtype: torch.dtype, device: torch.device, on_progress: OnProgress
) -> tuple[ModelConfig, DecoderWeights, bytes]:
    file = GgufFile(source.path)
    model_config = config_from_gguf(file)
    fused = fused_tensors(model_config)
    _check_memory(source, fused, dtype, device)
    prepared = open_prepared(source.path, fused, dtype)
    if prepared is None:
        tensors = GgufSource(file, model_config)
        check_tensors(tensors, fused)
        source_digest = digest([source.path])
        if write_prepared(source.path, source_digest, tensors, fused, dtype, on_progress):
            prepared = open_prepared(source.path, fused, dtype)
        if prepared is None:
            weights = _fused_on(device, model_config, tensors, fused, dtype, on_progress)
            return model_config, weights, fingerprint(model_config, source_digest)
    loaded = {name: values.to(device) for name, values in prepared.tensors.items()}
    num_bytes = sum(values.nbytes for values in loaded.values())
    on_progress(LoadProgress("load", num_bytes, num_bytes))
    weights = DecoderWeights.from_tensors(model_config, loaded)
    return model_config, weights, fingerprint(model_config, prepared.source_digest)


def _check_memory(source: ModelSource, fused: list[FusedTensor], dtype: torch.dtype, device: torch.device) -> None:
    num_bytes = sum(tensor.num_elements for tensor in fused) * dtype.itemsize
    check_fits(f"the model {source.name}", num_bytes, device)


def _fused_on(
    device: torch.device,
    model_config: ModelConfig,
    tensors: TensorSource,
    fused: list[FusedTensor],
    dtype: torch.dtype,
    on_progress: OnProgress,
) -> DecoderWeights:
    loaded: dict[str, torch.Tensor] = {}
    done, num_bytes = 0, sum(tensor.num_elements for tensor in fused) * dtype.itemsize
    for tensor, values in fuse(tensors, fused, dtype):
        loaded[tensor.name] = values.to(device)
        done += values.nbytes
        on_progress(LoadProgress("load", done, num_bytes))
    return DecoderWeights.from_tensors(model_config, loaded)


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
