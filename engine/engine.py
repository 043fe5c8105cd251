"""The engine that a program calls: a model loaded, text and token ids in, replies out."""

import time
from collections.abc import Sequence as ListOf
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property

from .assembly import build_core, build_kv_cache
from .cache.block_detail import BlockDetail
from .cache.prefix_probe import PrefixProbe
from .config import EngineConfig
from .core import EngineCore
from .counted import counted
from .errors import EngineClosed, InvalidParameter, StepFailed, TokenizerMissing
from .events import BlockEvent
from .home import prepared_folder
from .metrics import PoolSnapshot, TimeEstimate
from .model.file_check import telling_the_remedy
from .model.loader import LoadedModel, load_model
from .model.memory import refusal_of_memory, return_freed_memory
from .model.model_runner import ModelRunner
from .output_builder import OutputBuilder
from .progress import OnProgress, ignore_progress
from .request import BeamPreview, RequestOutput, SamplingParams, TokenDelta
from .text.chat_encoder import ChatEncoder
from .text.chat_message import ChatMessage
from .text.chat_template import ChatTemplate
from .text.detokenizer import whole_characters
from .text.tokenizer import Tokenizer
from .text.tokenizer_files import read_tokenizer_files
from .warm_up import WarmUp


class Engine:
    """A model and its pool of KV blocks, driven by the caller's own thread.

    Either `generate` whole replies, or `submit` requests and call `step` until nothing is unfinished. `AsyncEngine`
    does the latter on a thread of its own.

    Raises, when built: ModelNotFound, ModelUnsupported, ModelFileInvalid, DownloadFailed, OutOfMemory,
    InvalidParameter. After `close` whatever needs the model or its pool raises EngineClosed.
    """

    @refusal_of_memory("the model was loaded")
    def __init__(self, config: EngineConfig | None = None, on_progress: OnProgress = ignore_progress) -> None:
        started = time.perf_counter()
        self.config = config or EngineConfig()
        with telling_the_remedy(self.config.model):
            model = load_model(self.config, on_progress)
            source = model.tokenizer_source
            files = read_tokenizer_files(source, prepared_folder(source), on_progress)
        self._model: LoadedModel | None = model
        self.model_name = model.name
        # A vocabulary is built without the interpreter lock, most of what a first step needs with it.
        with ThreadPoolExecutor(1, "paged-chat tokenizer") as beside:
            tokenizer = None if files is None else beside.submit(Tokenizer, files)
            kv_cache = build_kv_cache(self.config, model)
            runner = ModelRunner(model.decoder, kv_cache, model.device, sharing=model.sharing)
            self._block_reads = runner.block_reads
            warm_up = WarmUp(runner, model.decoder.path_rows)
            self._warm_up: WarmUp | None = warm_up
            warm_up.start(on_progress)
            self._tokenizer = None if tokenizer is None else tokenizer.result()
        self._chat_template = ChatTemplate(self._tokenizer) if self._tokenizer is not None else None
        self._held_deltas: list[TokenDelta] = []
        self._core: EngineCore | None = build_core(self.config, model, kv_cache, runner, self._tokenizer)
        self.load_s = time.perf_counter() - started

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives back the memory of weights and pool; safe to call twice."""
        self._core = None
        self._model = None
        self._warm_up = None
        return_freed_memory()

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
            need = counted(len(prompts), "prompt needs", "prompts need")
            raise InvalidParameter(f"{need} one SamplingParams or as many, not {len(each)}")
        builders: dict[str, OutputBuilder] = {}
        try:
            for prompt, own in zip(prompts, each, strict=True):
                token_ids = self.encode_prompt(prompt) if isinstance(prompt, str) else prompt
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

    def submit(
        self,
        prompt_token_ids: ListOf[int],
        params: SamplingParams | None = None,
        *,
        salt: str = "",
        reply_start: ListOf[int] = (),
    ) -> str:
        """Queues a request and gives its id; `step` computes it.

        reply_start: ids that each reply begins with, as if they had been drawn; they come with its first delta.

        Raises EmptyPrompt, PromptTooLong, and InvalidParameter for ids outside the vocabulary or too many samples.
        """
        return self._open_core().submit(
            prompt_token_ids, params or SamplingParams(), salt=salt, reply_start=reply_start
        )

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

    def beam_previews(self) -> list[BeamPreview]:
        """Where each beam search that has begun stands: its replies come at its end alone."""
        return self._open_core().beam_previews()

    @property
    def has_unfinished(self) -> bool:
        """Whether `step` has anything left to compute or to report."""
        return bool(self._held_deltas) or (self._core is not None and self._core.has_unfinished)

    # The cache

    def probe(self, prompt_token_ids: ListOf[int], *, salt: str = "", across_salts: bool = False) -> PrefixProbe:
        """What a request with this prompt would reuse now, and why no more; changes nothing.

        across_salts: also tell how many of its tokens are cached for other salts. Only for who may know what they sent:
        asked with one guess after the other, it tells.
        """
        return self._open_core().probe(prompt_token_ids, salt=salt, across_salts=across_salts)

    def expected_ttft(self, num_prompt_tokens: int, num_cached_tokens: int) -> TimeEstimate | None:
        """How long a prompt of which so many tokens are cached would take to its first token, if nothing else ran.

        From the steps that have run here; None before enough of nearly that size was measured.
        """
        return self._open_core().expected_ttft(num_prompt_tokens, num_cached_tokens)

    def snapshot(self) -> PoolSnapshot:
        """How the pool stands now, and what was counted since the start."""
        return replace(self._open_core().snapshot(), block_reads_saved=self._block_reads.num_saved)

    def block(self, block_id: int, *, salt: str | None = None) -> BlockDetail:
        """What a block holds and who holds it; changes nothing.

        With a salt, a block that belongs to requests of another salt keeps its contents to itself. Raises
        InvalidParameter for an id that the pool hasn't.
        """
        return self._open_core().block(block_id, salt=salt)

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
        """Token ids of a text in which nothing is a control token. Raises TokenizerMissing, as do those below."""
        return self.tokenizer.encode(text)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a raw prompt for a model to go on with: control tokens in it are what they say."""
        return self.tokenizer.encode_prompt(text)

    def decode(self, token_ids: ListOf[int]) -> str:
        """The text of token ids, without control tokens; U+FFFD where they end within a character."""
        return self.tokenizer.decode(token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        """What one token stands for inside a text, which may be a part of a character; a control token's own spelling.

        Empty for an id beyond the vocabulary. May be called from any thread.
        """
        return self.tokenizer.token_bytes.of(token_id, first=False, skip_special=False) or b""

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

    def warm_up(self) -> None:
        """Runs what only long prompts need, so that the first of them is as fast as the next.

        Takes 0.2 s, or many where kernels must be compiled, and nothing the second time. `AsyncEngine` does it as soon
        as there is nothing else to do.
        """
        if self._warm_up is not None:
            self._warm_up.finish()

    @property
    def model(self) -> LoadedModel:
        """Raises EngineClosed."""
        if self._model is None:
            raise _closed()
        return self._model

    @property
    def max_model_len(self) -> int:
        """Longest prompt and reply together, in tokens."""
        return self._open_core().max_len

    def _open_core(self) -> EngineCore:
        if self._core is None:
            raise _closed()
        return self._core


def _closed() -> EngineClosed:
    return EngineClosed("the engine is closed: make a new one")
