"""The dense decoder that a packed one is compared with."""

from dataclasses import replace
from pathlib import Path

import torch

from paged_chat.engine.model.catalog import resolve
from paged_chat.engine.model.decoder import Decoder
from paged_chat.engine.model.loader import OpenedModel
from paged_chat.engine.model.packed_weights import HEAD_BITS, LINEARS
from paged_chat.engine.model.weights import DecoderWeights, fuse
from paged_chat.engine.progress import ignore_progress
from paged_chat.kernels import choose_backend
from paged_chat.kernels.cpu.grouped_weights import quantise
from paged_decoder import PagedDecoder


def dense_twin(model: Path, bits: int) -> PagedDecoder:
    """A float32 decoder over the weights that packing leaves."""
    opened = OpenedModel.open(resolve(str(model), ignore_progress))
    tensors = {}
    for tensor, value in fuse(opened.tensors(), opened.fused, torch.float32):
        role = tensor.name.rsplit(".", 1)[-1]
        if role in LINEARS:
            value = torch.from_numpy(quantise(value.numpy(), bits).dense())
        if role in ("embedding", "head"):
            tensors["head"] = torch.from_numpy(quantise(value.numpy(), HEAD_BITS).dense())
        if role != "head":
            tensors[tensor.name] = value.bfloat16().float() if role == "embedding" else value
    config = replace(opened.config, tie_embeddings=False)
    backend = choose_backend("reference", torch.device("cpu"))
    return PagedDecoder(Decoder(config, DecoderWeights.from_tensors(config, tensors), backend, 256))
