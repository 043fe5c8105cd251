"""The engine that a program calls: a model loaded, text and token ids in, replies out."""

import time
from collections.abc import Sequence as ListOf
from functools import cached_property

from .cache.block_detail import BlockDetail
from .cache.block_manager import BlockManager, PrefixProbe
from .cache.kv_cache import KVCache, block_bytes
from .config import EngineConfig
from .core import EngineCore, ModelLimits
from .errors import EngineClosed, InvalidParameter, StepFailed, TokenizerMissing
from .events import BlockEvent, EventLog
from .home import prepared_folder
from .metrics import PoolSnapshot
from .model.loader import LoadedModel, load_model
from .model.model_runner import ModelRunner
from .output_builder import OutputBuilder
from .pool_size import choose_num_blocks
from .progress import LoadProgress, OnProgress, ignore_progress
from .request import RequestOutput, SamplingParams, TokenDelta
from .text.chat_encoder import ChatEncoder
from .text.chat_message import ChatMessage
from .text.chat_template import ChatTemplate
from .text.detokenizer import whole_characters
from .text.tokenizer import Tokenizer, load_tokenizer

WARM_UP_ROWS = (1, 128)  # one token, and a prompt long enough for the path that long prompts take


class Engine:
    """A model and its pool of KV blocks, driven by the caller's own thread.

    Either `generate` whole replies, or `submit` requests and call `step` until nothing is unfinished. `AsyncEngine`
    does the latter on a thread of its own.

    Raises, when built: ModelNotFound, ModelUnsupported, ModelFileInvalid, DownloadFailed, OutOfMemory,
    InvalidParameter.
    """

    def __init__(self, config: EngineConfig | None = None, on_progress: OnProgress = ignore_progress) -> None:
        started = time.perf_counter()
        self.config = config or EngineConfig()
        model = load_model(self.config, on_progress)
        self._model: LoadedModel | None = model
        self.model_name = model.name
        source = model.tokenizer_source
        self._tokenizer = load_tokenizer(source, prepared_folder(source), on_progress)
        self._chat_template = ChatTemplate(self._tokenizer) if self._tokenizer is not None else None
        self._held_deltas: list[TokenDelta] = []
        self._core: EngineCore | None = self._build_core(model, on_progress)
        self.load_s = time.perf_counter() - started

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives back the memory of weights and pool; safe to call twice."""
        self._core = None
        self._model = None

    # Requests

    def generate(
        self,
        prompts: ListOf[ListOf[int] | str],
        params: SamplingParams | ListOf[SamplingParams] | None = None,
        *,
        salt: str = "",
    ) -> list[RequestOutput]:
        """Runs all prompts together; gives their outputs in the prompts' order.

        prompts: token ids, or raw text for the model to continue (`encode_chat` makes ids of a chat).
        params: one for all, or one for each prompt.
        salt: prompts share KV only with those of the same salt.

        Raises what `submit` raises, before anything is computed, and StepFailed.
        """
        core = self._open_core()
        each = [params or SamplingParams()] * len(prompts) if not isinstance(params, ListOf) else list(params)
        if len(each) != len(prompts):
            raise InvalidParameter(f"{len(prompts)} prompts need one SamplingParams or as many, not {len(each)}")
        builders: dict[str, OutputBuilder] = {}
        try:
            for prompt, own in zip(prompts, each, strict=True):
                token_ids = self.tokenizer.encode_prompt(prompt) if isinstance(prompt, str) else prompt
                request_id = core.submit(token_ids, own, salt=salt)
                builders[request_id] = OutputBuilder(request_id, own.n)
            while not all(builder.is_whole for builder in builders.values()):
                for delta in core.step():
                    if delta.request_id in builders:
                        builders[delta.request_id].add(delta)
                    else:
                        self._held_deltas.append(delta)  # of a request that was submitted; its caller's `step` gets it
        finally:
            for request_id in builders:
                core.abort(request_id, report=False)
        for builder in builders.values():
            if builder.error is not None:
                raise StepFailed(builder.error)
        return [builder.output() for builder in builders.values()]

    def submit(self, prompt_token_ids: ListOf[int], params: SamplingParams | None = None, *, salt: str = "") -> str:
        """Queues a request and gives its id; `step` computes it.

        Raises EmptyPrompt, PromptTooLong, and InvalidParameter for ids outside the vocabulary or too many samples.
        """
        return self._open_core().submit(prompt_token_ids, params or SamplingParams(), salt=salt)

    def step(self) -> list[TokenDelta]:
        """Computes one batch; gives the new tokens of every reply in it.

        A fault in a step doesn't raise: the requests in it end with finish_reason "error".
        """
        held, self._held_deltas = self._held_deltas, []
        return held + self._open_core().step()

    def abort(self, request_id: str, sample: int | None = None) -> bool:
        """Ends a request, or one reply of it, now; `step` still reports the end. False if it has ended already.

        One reply of several can't end alone before their common prompt is computed: False as well.
        """
        return self._open_core().abort(request_id, sample)

    @property
    def has_unfinished(self) -> bool:
        return bool(self._held_deltas) or (self._core is not None and self._core.has_unfinished)

    # The cache

    def probe(self, prompt_token_ids: ListOf[int], *, salt: str = "") -> PrefixProbe:
        """What a request with this prompt would reuse now; changes nothing."""
        return self._open_core().probe(prompt_token_ids, salt=salt)

    def snapshot(self) -> PoolSnapshot:
        return self._open_core().snapshot()

    def block(self, block_id: int) -> BlockDetail:
        """What a block holds and who holds it; changes nothing."""
        return self._open_core().block(block_id)

    def events(self, since: int = 0) -> ListOf[BlockEvent]:
        """Block events from number `since` on, as far as the ring still holds them."""
        return self._open_core().events.since(since)

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant of the pool is broken."""
        self._open_core().check_integrity()

    # Text

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises TokenizerMissing for a model folder without one."""
        if self._tokenizer is None:
            raise self._tokenizer_missing()
        return self._tokenizer

    def _tokenizer_missing(self) -> TokenizerMissing:
        return TokenizerMissing(
            f"the model {self.model_name} has no tokenizer: add its tokenizer.json, or use token ids"
        )

    def encode(self, text: str) -> list[int]:
        """Token ids of a text in which nothing is a control token."""
        return self.tokenizer.encode(text)

    def decode(self, token_ids: ListOf[int]) -> str:
        return self.tokenizer.decode(token_ids)

    def encode_chat(self, messages: ListOf[ChatMessage]) -> list[int]:
        """The chat in the model's own template, up to where its next reply begins.

        A chat that goes on begins with the ids that were encoded before, and the reply's own (see ChatEncoder).
        May be called from any thread, as may `encode`, `decode` and `resumable`.

        Raises TokenizerMissing, and ChatTemplateInvalid where the model has no template or it refuses the messages.
        """
        return self._chat_encoder.encode(messages)

    def resumable(self, reply_token_ids: ListOf[int]) -> list[int]:
        """The ids of a reply after which it can go on: without an end token, and without half a character."""
        return whole_characters(self.tokenizer, self.tokenizer.without_end(reply_token_ids))

    @property
    def chat_template(self) -> ChatTemplate:
        """Raises TokenizerMissing for a model folder without tokenizer."""
        if self._chat_template is None:
            raise self._tokenizer_missing()
        return self._chat_template

    @cached_property
    def _chat_encoder(self) -> ChatEncoder:
        return ChatEncoder(self.tokenizer, self.chat_template)

    # Figures

    @property
    def model(self) -> LoadedModel:
        if self._model is None:
            raise EngineClosed("the engine is closed: make a new one")
        return self._model

    @property
    def max_model_len(self) -> int:
        """Longest prompt and reply together, in tokens."""
        return self._open_core().max_len

    def _build_core(self, model: LoadedModel, on_progress: OnProgress) -> EngineCore:
        config, shape = self.config, model.model_config
        num_bytes = block_bytes(shape.num_layers, shape.num_kv_heads, shape.head_dim, config.block_size, model.dtype)
        num_blocks = choose_num_blocks(config, model.device, num_bytes, model.context_window)
        kv_cache = KVCache(
            model.backend,
            num_layers=shape.num_layers,
            num_blocks=num_blocks,
            num_kv_heads=shape.num_kv_heads,
            block_size=config.block_size,
            head_dim=shape.head_dim,
            dtype=model.dtype,
            device=model.device,
        )
        manager = BlockManager(
            num_blocks,
            config.block_size,
            prefix_caching=config.prefix_caching,
            watermark_blocks=int(config.watermark * num_blocks),
            events=EventLog(),
        )
        limits = ModelLimits(
            vocab_size=shape.vocab_size,
            max_model_len=model.context_window,
            end_token_ids=frozenset(shape.eos_token_ids),
            key_fields=(model.fingerprint.hex(), model.weights, str(model.dtype), model.backend.name, ""),
        )
        runner = ModelRunner(model.decoder, kv_cache, model.device)
        for done, num_rows in enumerate(WARM_UP_ROWS):
            on_progress(LoadProgress("warm up", done, len(WARM_UP_ROWS)))
            runner.warm_up(num_rows)
        on_progress(LoadProgress("warm up", len(WARM_UP_ROWS), len(WARM_UP_ROWS)))
        return EngineCore(
            runner,
            manager,
            limits,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            block_bytes=num_bytes,
            tokenizer=self._tokenizer,
            check_every_step=config.check_integrity,
        )

    def _open_core(self) -> EngineCore:
        if self._core is None:
            raise EngineClosed("the engine is closed: make a new one")
        return self._core
