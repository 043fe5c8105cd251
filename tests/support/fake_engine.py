"""An engine that says what it is told to: the real one, on its own thread, with its real blocks; only the model is not.

Replies are enqueued as text. Tokens come from a tiny byte-level tokenizer (one token a byte, "he" is one too), prompts
from a template that writes `role:content</s>` for each message.
"""

import itertools
import math
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from paged_chat.engine import AsyncEngine, EngineConfig, SamplingParams, TokenDelta
from paged_chat.engine.batch import Batch
from paged_chat.engine.cache.block_manager import BlockManager
from paged_chat.engine.core import EngineCore
from paged_chat.engine.engine import Engine
from paged_chat.engine.events import EventLog
from paged_chat.engine.progress import LoadProgress, OnProgress
from paged_chat.engine.request import TokenLogprobs
from paged_chat.engine.request_check import ModelLimits
from paged_chat.engine.sampler import SampledToken
from paged_chat.engine.sequence import Sequence
from paged_chat.engine.shared_runs import BlockReads
from paged_chat.engine.text.chat_template import ChatTemplate
from paged_chat.engine.text.tokenizer import Tokenizer
from patience import PATIENCE_S
from tiny_tokenizer import END, tokenizer_in


class FakeEngine:
    """Opens engines for a service (`ChatService(store, fake.open)`), and is told what they say and how fast.

    Everything may be called while they run.
    """

    def __init__(self, *, max_model_len: int = 4096, num_blocks: int = 512, max_num_seqs: int = 64) -> None:
        self.max_model_len = max_model_len
        self.num_blocks = num_blocks
        self.max_num_seqs = max_num_seqs
        self.scripts = Scripts()
        # What could have stood in the place of a token, itself among it: {"b": {"b": 0.5, "x": 0.25}}. Else it is sure.
        self.odds: dict[str, dict[str, float]] = {}
        self.pace = Pace()
        self.models: list[FakeModel] = []  # as they were loaded
        self.load_error: BaseException | None = None
        self.may_load = threading.Event()
        self.may_load.set()
        self._opened: list[AsyncEngine] = []

    def open(self, config: EngineConfig, on_progress: OnProgress) -> AsyncEngine:
        """What a service calls to get its engine."""
        self._opened.append(AsyncEngine(config, on_progress, build=self.build))
        return self._opened[-1]

    def close(self) -> None:
        """Lets go of whatever waits, and ends the engines' threads."""
        self.may_load.set()
        self.pace.go()
        for engine in self._opened:
            engine.close()

    # What it says

    def enqueue(self, *samples: str) -> None:
        """What the samples of the next request say; then they end by themselves."""
        self.scripts.add(_Script(tuple([*_ids_of(text), END] for text in samples)))

    def enqueue_ids(self, *token_ids: int) -> None:
        """What the next request says, in tokens, for those that are no text; then it ends by itself."""
        self.scripts.add(_Script(([*token_ids, END],)))

    def enqueue_failure(self, text: str, error: str) -> None:
        """The next request says this, then the step fails that computes it."""
        self.scripts.add(_Script((_ids_of(text),), error))

    # How fast

    def hold(self) -> None:
        """From now on nothing is computed until `let` or `go`; what was asked is still answered."""
        self.pace.hold()

    def let(self, num_steps: int) -> None:
        """Computes so many steps while it is held: each is a token of every running reply."""
        self.pace.let(num_steps)

    def go(self) -> None:
        """Computes as fast as it can, or with a pause before each step if `pace.pause_s` is set."""
        self.pace.go()

    def stall(self) -> None:
        """The next step takes until `go`, and nothing is answered meanwhile: a very long prompt."""
        self.pace.stall()

    def crash(self, message: str) -> None:
        """The next step breaks the engine itself."""
        self.pace.crash = message

    def build(self, config: EngineConfig, on_progress: OnProgress) -> "FakeModel":
        """What `open` gives to a thread of its own."""
        on_progress(LoadProgress("load", 1, 4))
        assert self.may_load.wait(PATIENCE_S)
        if self.load_error is not None:
            raise self.load_error
        on_progress(LoadProgress("load", 4, 4))
        self.models.append(FakeModel(config, self))
        return self.models[-1]


class FakeModel(Engine):
    """`Engine` with everything but weights; `submitted` keeps what was asked of it, replies' beginnings too."""

    def __init__(self, config: EngineConfig, fake: FakeEngine) -> None:
        self.config = config
        self.model_name = config.model
        self.load_s = 0.25
        self.was_closed = False
        self.submitted: list[tuple[list[int], SamplingParams, str]] = []  # prompt, params, salt
        self._tokenizer = _tokenizer()
        self._chat_template = ChatTemplate(self._tokenizer)
        self._held_deltas = []
        self._warm_up = None
        self._block_reads = BlockReads()
        self._pace = fake.pace
        self._core = self._scripted_core = _ScriptedCore(fake, self._tokenizer)

    def submit(
        self,
        prompt_token_ids: ListOf[int],
        params: SamplingParams | None = None,
        *,
        salt: str = "",
        reply_start: ListOf[int] = (),
    ) -> str:
        request_id = super().submit(prompt_token_ids, params, salt=salt, reply_start=reply_start)
        self.submitted.append(([*prompt_token_ids, *reply_start], params or SamplingParams(), salt))
        return request_id

    def prompts(self) -> list[str]:
        """What was asked of it, as text with its control tokens."""
        return [self.tokenizer.decode(prompt, skip_special=False) for prompt, _, _ in self.submitted]

    def step(self) -> list[TokenDelta]:
        if not self._pace.may_step():
            return self._scripted_core.take_ends()
        return super().step()

    def close(self) -> None:
        self.was_closed = True
        super().close()


class Pace:
    """How fast steps are computed; waits on the engine's thread."""

    def __init__(self) -> None:
        self.pause_s = 0.0
        self.crash: str | None = None
        self._num_allowed: float = float("inf")
        self._is_stalled = False
        self._changed = threading.Condition()

    def hold(self) -> None:
        self._set(0, is_stalled=False)

    def let(self, num_steps: int) -> None:
        self._set(self._num_allowed + num_steps, is_stalled=False)

    def go(self) -> None:
        self._set(float("inf"), is_stalled=False)

    def stall(self) -> None:
        self._set(self._num_allowed, is_stalled=True)

    def may_step(self) -> bool:
        if self.crash is not None:
            message, self.crash = self.crash, None
            raise AssertionError(message)
        with self._changed:
            assert self._changed.wait_for(lambda: not self._is_stalled, PATIENCE_S)
            # A moment only, so that what else is asked of the engine meanwhile is answered.
            self._changed.wait_for(lambda: self._num_allowed > 0, 0.001)
            if self._num_allowed <= 0:
                return False
            self._num_allowed -= 1
        time.sleep(self.pause_s)
        return True

    def _set(self, num_allowed: float, *, is_stalled: bool) -> None:
        with self._changed:
            self._num_allowed, self._is_stalled = num_allowed, is_stalled
            self._changed.notify_all()


@dataclass(frozen=True)
class _Script:
    samples: tuple[list[int], ...]
    error: str | None = None


class Scripts:
    """What the next requests say; when nothing is enqueued, `otherwise`, or "reply 1", "reply 2" and so on."""

    def __init__(self) -> None:
        self.otherwise: str | None = None
        self._waiting: deque[_Script] = deque()
        self._numbers = itertools.count(1)

    def add(self, script: _Script) -> None:
        self._waiting.append(script)

    def take(self, num_samples: int) -> _Script:
        if not self._waiting:
            texts = [self.otherwise or f"reply {next(self._numbers)}" for _ in range(num_samples)]
            return _Script(tuple([*_ids_of(text), END] for text in texts))
        script = self._waiting.popleft()
        assert len(script.samples) == num_samples, f"{len(script.samples)} replies were enqueued for n={num_samples}"
        return script


class _ScriptedCore(EngineCore):
    """The real core; each token that was drawn is replaced by the one that the script wants there."""

    def __init__(self, fake: FakeEngine, tokenizer: Tokenizer) -> None:
        super().__init__(
            _NoRunner(tokenizer.vocab_size),
            BlockManager(fake.num_blocks, 16, prefix_caching=True, watermark_blocks=0, events=EventLog()),
            ModelLimits(
                vocab_size=tokenizer.vocab_size, max_model_len=fake.max_model_len, end_token_ids=frozenset([END])
            ),
            max_num_seqs=fake.max_num_seqs,
            max_num_batched_tokens=2048,
            tokenizer=tokenizer,
            check_every_step=True,
        )
        self._queue = fake.scripts
        self._odds = fake.odds
        self._scripts: dict[str, _Script] = {}

    def submit(
        self,
        prompt_token_ids: ListOf[int],
        params: SamplingParams,
        *,
        salt: str = "",
        reply_start: ListOf[int] = (),
    ) -> str:
        request_id = super().submit(prompt_token_ids, params, salt=salt, reply_start=reply_start)
        self._scripts[request_id] = self._queue.take(params.n)
        return request_id

    def take_ends(self) -> list[TokenDelta]:
        """The ends that the next step would report, without computing one."""
        ends, self._ended = self._ended, []
        return ends

    def _append(self, sequence: Sequence, token: SampledToken) -> TokenDelta:
        script = self._scripts[sequence.request_id]
        said = script.samples[sequence.sample]
        if sequence.num_generated_tokens == len(said):
            raise RuntimeError(script.error)
        token_id = said[sequence.num_generated_tokens]
        logprobs = None if token.logprobs is None else self._logprobs(token_id, sequence)
        return super()._append(sequence, SampledToken(token_id, logprobs))

    def _logprobs(self, token_id: int, sequence: Sequence) -> TokenLogprobs:
        token = _tokenizer().decode([token_id], skip_special=False)
        odds = {_id_of(text): math.log(odds) for text, odds in self._odds.get(token, {}).items()} or {token_id: 0.0}
        ranked = sorted(odds.items(), key=lambda pair: -pair[1])
        return TokenLogprobs(token_id, odds[token_id], tuple(ranked[: sequence.params.logprobs]))


class _NoRunner:
    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def execute(self, batch: Batch) -> torch.Tensor:
        return torch.zeros(len(batch.logits_rows), self._vocab_size)

    def find_faulty_layer(self, batch: Batch) -> int | None:
        return None


@cache
def _tokenizer() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        return tokenizer_in(Path(folder))


def _id_of(token: str) -> int:
    [token_id] = _tokenizer().encode_markup(token)
    return token_id


def _ids_of(text: str) -> list[int]:
    return _tokenizer().encode(text)
