"""Prompts put to one engine, and what comes back printed: as text for people, as JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol

import typer

from paged_chat.engine import ChatMessage
from paged_chat.engine.request import SamplingParams

from ..answer import Answer, Reply, StepEngine, run_request
from ..cache_view.sharing import sharing_of_request
from ..counted import counted
from ..terminal_text import json_line, shown_on
from ..token_view.token_piece import legible
from ..transcript.miss_reason import why_missed
from .interrupt import StopFlag, stop_on_interrupt
from .reply_printer import ReplyPrinter
from .search_line import SearchLine

EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


class AskedEngine(StepEngine, Protocol):
    """An engine of our own, or one in another process."""

    @property
    def model_name(self) -> str: ...

    @property
    def load_s(self) -> float: ...

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]: ...
    def decode(self, token_ids: Sequence[int]) -> str: ...
    def token_bytes(self, token_id: int) -> bytes: ...


class Asker:
    """Puts prompts to one engine and prints what comes back."""

    def __init__(self, engine: AskedEngine, params: SamplingParams, system: str | None, *, as_json: bool) -> None:
        self._engine = engine
        self._params = params
        self._system = system
        self._as_json = as_json
        self.exit_code = EXIT_INTERRUPTED  # where a reply was cut short

    def ask(self, prompt: str, title: str | None = None, is_first: bool = True) -> bool:
        """Prints the replies to one prompt; False when Ctrl-C or SIGTERM cut them short (what had come is printed)."""
        messages = [ChatMessage("system", self._system)] if self._system is not None else []
        prompt_token_ids = self._engine.encode_chat([*messages, ChatMessage("user", prompt)])
        search_line = SearchLine()
        printer = None if self._as_json else ReplyPrinter(self._params.n, search_line)
        if printer is not None and title is not None:
            sys.stdout.write(("" if is_first else "\n") + shown_on(sys.stdout, f"> {title.strip()}\n"))
        with stop_on_interrupt() as stopped:
            answer = run_request(
                self._engine,
                prompt_token_ids,
                self._params,
                on_delta=printer.show if printer is not None else lambda _: None,
                should_stop=stopped,
                on_preview=search_line.show,
            )
        if printer is not None:
            printer.finish()
            self._show_figures(answer, stopped)
        else:
            print(json_line(self._as_dict(answer, prompt_token_ids), sys.stdout), flush=True)
        if stopped.must_end:
            self.exit_code = EXIT_TERMINATED
        return not stopped.is_set

    def _as_dict(self, answer: Answer, prompt_token_ids: Sequence[int]) -> dict[str, object]:
        prefix = answer.prefix
        miss = None if prefix is None else why_missed(prefix, prompt_token_ids, self._engine.decode)
        return {
            "model": self._engine.model_name,
            "samples": [
                {
                    "index": reply.index,
                    "text": reply.text,
                    "token_ids": reply.token_ids,
                    "finish_reason": reply.finish_reason,
                    **({} if reply.score is None else {"score": reply.score}),
                    **({} if self._params.logprobs is None else {"logprobs": self._logprobs_of(reply)}),
                }
                for reply in answer.replies
            ],
            "usage": {
                "prompt_tokens": answer.num_prompt_tokens,
                "cached_tokens": answer.num_cached_tokens,
                "completion_tokens": answer.num_completion_tokens,
            },
            "timing": {
                "load_s": self._engine.load_s,
                "ttft_ms": answer.ttft_ms,
                "decode_tokens_per_s": answer.decode_tokens_per_s,
            },
            "speculation": {
                "drafted_tokens": answer.num_drafted_tokens,
                "accepted_tokens": answer.num_accepted_tokens,
            },
            "miss": None if miss is None else miss.as_dict(),
        }

    def _logprobs_of(self, reply: Reply) -> list[dict[str, object]]:
        """One for each token, with its text; "top" holds [id, text, log probability], likeliest first."""
        text = {
            token_id: legible(self._engine.token_bytes(token_id))
            for one in reply.logprobs
            for token_id in [one.token_id, *(token_id for token_id, _ in one.top)]
        }
        return [
            {
                "token_id": one.token_id,
                "text": text[one.token_id],
                "logprob": one.logprob,
                "top": [[token_id, text[token_id], logprob] for token_id, logprob in one.top],
            }
            for one in reply.logprobs
        ]

    def _show_figures(self, answer: Answer, stopped: StopFlag) -> None:
        """One line under the reply, for people only."""
        if not sys.stderr.isatty():
            return
        figures = [f"{counted(answer.num_prompt_tokens, 'prompt token')}, {answer.num_cached_tokens:,} cached"]
        if answer.ttft_ms is not None:
            figures.append(f"first token after {answer.ttft_ms:.0f} ms")
        rate = f" at {answer.decode_tokens_per_s:.0f}/s" if answer.decode_tokens_per_s is not None else ""
        figures.append(f"{counted(answer.num_completion_tokens, 'token')}{rate}")
        if answer.num_accepted_tokens:
            figures.append(f"{answer.num_accepted_tokens} guessed ahead")
        if (sharing := sharing_of_request(answer.block_use, beam_width=self._params.beam_width)) is not None:
            figures.append(str(sharing))
        if stopped.is_set:
            figures.append("stopped")
        typer.secho(f"[{' · '.join(figures)}]", dim=True, err=True)
