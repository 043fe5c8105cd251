"""Drives a decoder over a paged cache as the engine does, but with blocks dealt out at random and poisoned with NaN."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from paged_chat.engine.batch import Batch
from paged_chat.engine.cache.kv_cache import KVCache
from paged_chat.engine.model.decoder import Decoder, DecoderInput
from paged_chat.engine.model.packed_decoder import PackedDecoder
from paged_chat.engine.model.tiled_decoder import TiledDecoder


class PagedDecoder:
    """`step` computes the next tokens of any number of sequences at once and gives the logits after each of them."""

    def __init__(
        self,
        decoder: Decoder | PackedDecoder | TiledDecoder,
        num_blocks: int = 256,
        block_size: int = 16,
        seed: int = 0,
        dtype: Any = None,  # of the cache where weights are packed, float32 if not given
    ) -> None:
        import torch

        from paged_chat.kernels import choose_backend

        self.decoder = decoder
        self.block_size = block_size
        cpu = torch.device("cpu")
        if isinstance(decoder, Decoder):
            backend, dtype = decoder.backend, decoder.weights.embedding.dtype
        else:
            backend = choose_backend("cpu", cpu)
        cache = KVCache(
            backend,
            num_layers=decoder.config.num_layers,
            num_blocks=num_blocks,
            num_kv_heads=decoder.config.num_kv_heads,
            block_size=block_size,
            head_dim=decoder.config.head_dim,
            dtype=dtype or torch.float32,
            device=cpu,
        )
        cache.pool.fill_(float("nan"))
        self.key_caches, self.value_caches = cache.key_caches, cache.value_caches
        self._free = list(range(1, num_blocks))
        random.Random(seed).shuffle(self._free)
        self._tables: dict[str, list[int]] = {}
        self._lens: dict[str, int] = {}

    def step(self, *chunks: tuple[str, Sequence[int]], all_rows: bool = True) -> list[Any]:
        """(sequence, its next token ids) each -> per chunk [tokens, vocab] logits, or [1, vocab] without `all_rows`."""
        # Decodes first, as `Batch` wants them; a first chunk is a prefill even if it is one token long.
        order = sorted(range(len(chunks)), key=lambda i: not self._is_decode(*chunks[i]))
        num_decodes = sum(self._is_decode(*chunk) for chunk in chunks)
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        lens: list[int] = []
        starts = [0]
        for index in order:
            name, token_ids = chunks[index]
            begin = self._lens.get(name, 0)
            table = self._tables.setdefault(name, [])
            while len(table) * self.block_size < begin + len(token_ids):
                table.append(self._free.pop())
            for position in range(begin, begin + len(token_ids)):
                positions.append(position)
                slots.append(table[position // self.block_size] * self.block_size + position % self.block_size)
            ids += token_ids
            self._lens[name] = begin + len(token_ids)
            lens.append(self._lens[name])
            starts.append(len(ids))
        tables = [self._tables[chunks[index][0]] for index in order]
        widest = max(len(table) for table in tables)
        rows = np.arange(len(ids)) if all_rows else np.array(starts[1:]) - 1
        prefills = np.array(starts[num_decodes:]) - num_decodes
        batch = Batch(
            input_ids=np.array(ids, dtype=np.int64),
            positions=np.array(positions, dtype=np.int64),
            slot_mapping=np.array(slots, dtype=np.int64),
            block_tables=np.array([table + [0] * (widest - len(table)) for table in tables], dtype=np.int32),
            context_lens=np.array(lens, dtype=np.int32),
            cu_seqlens_q=prefills.astype(np.int32),
            logits_rows=rows.astype(np.int64),
            num_decodes=num_decodes,
            max_query_len=int(np.diff(prefills).max()) if len(prefills) > 1 else 0,
        )
        logits = self.decoder.forward(DecoderInput.from_batch(batch), self.key_caches, self.value_caches)
        counts = [stop - start if all_rows else 1 for start, stop in pairwise(starts)]
        parts = dict(zip(order, logits.split(counts), strict=True))
        return [parts[index] for index in range(len(chunks))]

    def _is_decode(self, name: str, token_ids: Sequence[int]) -> bool:
        return len(token_ids) == 1 and name in self._lens
