"""Puts a request's deltas together again."""

from .request import RequestOutput, SampleOutput, TokenDelta


class OutputBuilder:
    """Collects the deltas of one request until all its samples have ended."""

    def __init__(self, request_id: str, num_samples: int) -> None:
        self._request_id = request_id
        self._deltas: list[list[TokenDelta]] = [[] for _ in range(num_samples)]
        self._num_open = num_samples
        self.error: str | None = None  # of the step that failed it

    @property
    def is_whole(self) -> bool:
        return self._num_open == 0

    def add(self, delta: TokenDelta) -> None:
        self._deltas[delta.sample].append(delta)
        self._num_open -= delta.finish_reason is not None
        self.error = self.error or delta.error

    def output(self) -> RequestOutput:
        assert self.is_whole, "asked for the output of a request that still grows"
        samples = tuple(_sample(index, deltas) for index, deltas in enumerate(self._deltas))
        stats = samples[0].stats
        uses = [sample.stats.block_use for sample in samples if sample.stats.block_use is not None]
        most = max(uses, key=lambda use: use.num_blocks, default=None)
        return RequestOutput(self._request_id, stats.num_prompt_tokens, stats.num_cached_tokens, samples, most)


def _sample(index: int, deltas: list[TokenDelta]) -> SampleOutput:
    last = deltas[-1]
    assert last.finish_reason is not None
    assert last.stats is not None, "the last delta carries the sample's figures"
    return SampleOutput(
        index,
        tuple(token_id for delta in deltas for token_id in delta.token_ids),
        "".join(delta.text for delta in deltas),
        last.finish_reason,
        last.stats,
        tuple(logprobs for delta in deltas for logprobs in delta.logprobs),
        last.score,
    )
