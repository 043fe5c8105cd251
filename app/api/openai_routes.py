"""OpenAI's API over the engine: models, chat completions, completions; whole or streamed."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import Coroutine, Iterator, Sequence

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from paged_chat.engine.errors import PagedChatError
from paged_chat.engine.model.catalog import is_same_model, shown_name
from paged_chat.engine.request import SamplingParams

from ..service.engine_host import EngineHost, LoadedEngine
from ..task_end import end_tasks
from .accounts import Accounts
from .completion import Completion
from .completion_shapes import Json, Kind, Shapes
from .generation import Generation
from .openai_errors import EXCEPTION_HANDLERS, ApiError, from_engine
from .openai_schemas import ChatRequest, CompletionRequest
from .reply_memory import ReplyMemory

STARTED_AT = 0  # models have no date here


class OpenAIRoutes:
    """What stands under /v1. Without accounts it is anybody's on this machine, as the page is."""

    def __init__(self, host: EngineHost, accounts: Accounts) -> None:
        self._host = host
        self._accounts = accounts
        self._memory: tuple[LoadedEngine | None, ReplyMemory] = (None, ReplyMemory())

    @property
    def app(self) -> FastAPI:
        app = FastAPI(exception_handlers=EXCEPTION_HANDLERS, docs_url=None, redoc_url=None, openapi_url=None)
        app.add_api_route("/models", self.models, methods=["GET"])
        app.add_api_route("/models/{name:path}", self.model, methods=["GET"])
        app.add_api_route("/chat/completions", self.chat_completions, methods=["POST"], response_model=None)
        app.add_api_route("/completions", self.completions, methods=["POST"], response_model=None)
        return app

    def models(self, request: Request) -> Json:
        self._user_of(request)
        return {"object": "list", "data": [self._model_dict()]}

    def model(self, request: Request, name: str) -> Json:
        self._user_of(request)
        self._check_model(name)
        return self._model_dict()

    async def chat_completions(self, request: Request, body: ChatRequest) -> Response:
        salt = self._user_of(request)
        self._check_model(body.model)
        body.check()
        with _refused_as("messages"):
            params = body.sampling()
            loaded = await self._loaded()
            memory = self._memory_of(loaded)
            chat = [memory.recalled(salt, message) for message in body.chat()]
            prompt = await asyncio.to_thread(loaded.engine.encode_chat, chat)
            return await self._answer(request, body, loaded, [prompt], params, salt, "chat")

    async def completions(self, request: Request, body: CompletionRequest) -> Response:
        salt = self._user_of(request)
        self._check_model(body.model)
        body.check()
        with _refused_as("prompt"):
            params = body.sampling()
            loaded = await self._loaded()
            prompts = [
                await asyncio.to_thread(loaded.engine.encode_prompt, prompt) if isinstance(prompt, str) else prompt
                for prompt in body.prompts()
            ]
            return await self._answer(request, body, loaded, prompts, params, salt, "text")

    # Answers

    async def _answer(
        self,
        request: Request,
        body: ChatRequest | CompletionRequest,
        loaded: LoadedEngine,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        salt: str,
        kind: Kind,
    ) -> Response:
        shapes = Shapes(kind, self._host.config.model, loaded.engine)
        generation = Generation(loaded.served, params, salt)
        completion = Completion(generation, shapes, len(prompts), params.n)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(generation)
            await generation.start(prompts)
            if body.stream:
                stack.pop_all()  # the stream leaves it
                events = completion.events(body.includes_usage, lambda: self._remember(loaded, completion, salt, kind))
                return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
            await _unless_gone(request, completion.collect())
            self._remember(loaded, completion, salt, kind)
            return JSONResponse(shapes.whole(completion.choices, completion.usage))

    def _remember(self, loaded: LoadedEngine, completion: Completion, salt: str, kind: Kind) -> None:
        if kind == "chat":
            for choice in completion.choices:
                # Behind a stop text the ids say more than the text does.
                if loaded.engine.decode(choice.token_ids) == choice.text:
                    self._memory_of(loaded).remember(salt, choice.text, choice.token_ids)

    def _memory_of(self, loaded: LoadedEngine) -> ReplyMemory:
        if self._memory[0] is not loaded:
            self._memory = (loaded, ReplyMemory())
        return self._memory[1]

    async def _loaded(self) -> LoadedEngine:
        # Shielded, for the future is everybody's.
        return await asyncio.shield(asyncio.wrap_future(self._host.loaded))

    # Models and people

    def _model_dict(self) -> Json:
        return {"id": self._host.config.model, "object": "model", "created": STARTED_AT, "owned_by": "paged-chat"}

    def _check_model(self, name: str) -> None:
        here = self._host.config.model
        if not is_same_model(name, here):
            words = f"there is no model {shown_name(name)} here: this server has {here!r}"
            raise ApiError(404, words, param="model", code="model_not_found")

    def _user_of(self, request: Request) -> str:
        """Who asks: their name is the salt of their blocks. A key is USER:PASSWORD, as a bearer's token or as Basic."""
        if not len(self._accounts):
            return ""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                given = ""
        name, _, password = given.partition(":")
        if scheme.lower() not in ("bearer", "basic") or not self._accounts.check(name, password):
            words = "this server has accounts: give USER:PASSWORD as the API key"
            raise ApiError(401, words, code="invalid_api_key")
        return name


@contextlib.contextmanager
def _refused_as(prompt_name: str) -> Iterator[None]:
    try:
        yield
    except PagedChatError as error:
        raise from_engine(error, prompt_name) from error


async def _unless_gone(request: Request, work: Coroutine[None, None, None]) -> None:
    """Does the work, unless whoever asked goes away. Then it is cancelled, and nobody reads the answer."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ApiError(499, "whoever asked has gone")
        await working
    finally:
        await end_tasks(working, watching)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
