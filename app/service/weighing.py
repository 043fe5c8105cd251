"""What else could stand in one place of a reply, worked out now: a request that draws a token and stores nothing."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from paged_chat.engine.errors import StepFailed
from paged_chat.engine.request import MAX_TOP_LOGPROBS, SamplingParams, TokenDelta, TokenLogprobs

from .engine_host import LoadedEngine


def weigh_next(
    loaded: LoadedEngine, prompt: Sequence[int], reply_start: Sequence[int], salt: str
) -> Future[TokenLogprobs]:
    """How likely the model holds each token behind these, as far as the likeliest go; the likeliest is the drawn one.

    Where the cache holds all of them, one token is computed: its KV is there, but what the model made of it isn't.
    """
    weighed: Future[TokenLogprobs] = Future()
    params = SamplingParams(max_tokens=len(reply_start) + 1, logprobs=MAX_TOP_LOGPROBS, ignore_eos=True)

    def listen(delta: TokenDelta) -> None:
        if delta.logprobs:
            weighed.set_result(delta.logprobs[0])
        elif delta.finish_reason is not None:
            weighed.set_exception(StepFailed(delta.error or "the engine was stopped before the token was computed"))

    def look(submitted: Future[str]) -> None:
        if (error := submitted.exception()) is not None:
            weighed.set_exception(error)

    submitted = loaded.served.submit(prompt, params, listen, salt=salt, reply_start=reply_start)
    submitted.add_done_callback(look)
    return weighed
