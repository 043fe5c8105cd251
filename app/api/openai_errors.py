"""Refusals as users of OpenAI's API expect them: a status, a type, the parameter at fault, a code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from paged_chat.engine.errors import (
    ChatTemplateInvalid,
    EmptyPrompt,
    InvalidParameter,
    PagedChatError,
    PromptTooLong,
    TokenizerMissing,
)


class ApiError(Exception):
    """A request that can't be answered; `words` say what to do."""

    def __init__(self, status: int, words: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(words)
        # What a request held may be in the words, and halves of a surrogate pair can't be sent.
        words = words.encode(errors="replace").decode()
        self.status, self.words, self.param, self.code = status, words, param, code

    def as_dict(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.words, "type": kind, "param": self.param, "code": self.code}}


def from_engine(error: PagedChatError, prompt_name: str) -> ApiError:
    """prompt_name: the parameter that the prompt came in."""
    match error:
        case PromptTooLong():
            return ApiError(400, str(error), param=prompt_name, code="context_length_exceeded")
        case InvalidParameter():
            name = str(error).partition(" ")[0]
            return ApiError(400, str(error), param=name if name.isidentifier() else None, code="invalid_value")
        case EmptyPrompt() | ChatTemplateInvalid() | TokenizerMissing():
            return ApiError(400, str(error), param=prompt_name, code="invalid_value")
    return ApiError(503, str(error), code="engine_unavailable")


async def _refuse(_: Request, error: ApiError) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return JSONResponse(error.as_dict(), status_code=error.status, headers=headers)


async def _refuse_shape(request: Request, error: RequestValidationError) -> JSONResponse:
    fault = error.errors()[0]
    param = ".".join(str(part) for part in fault["loc"][1:] if not str(part).startswith(("str", "list[")))
    if fault["type"] == "json_invalid":
        return await _refuse(request, ApiError(400, "the body of the request can't be read as JSON"))
    if fault["type"] == "extra_forbidden":
        return await _refuse(request, ApiError(400, f"Unrecognized request argument supplied: {param}"))
    if fault["type"] == "missing":
        return await _refuse(request, ApiError(400, f"Missing required parameter: '{param}'.", param=param))
    words = f"Invalid value for '{param}': {fault['msg']}" if param else "the body must be a JSON object"
    return await _refuse(request, ApiError(400, words, param=param or None, code="invalid_type"))


async def _refuse_path(request: Request, error: HTTPException) -> JSONResponse:
    if error.status_code not in (404, 405):
        return await _refuse(request, ApiError(error.status_code, str(error.detail)))
    words = f"there is no {request.method} {request.url.path} here: docs/serve.md lists what there is"
    return await _refuse(request, ApiError(error.status_code, words, code="unknown_url"))


async def _fail(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PagedChatError)
    return await _refuse(request, from_engine(error, "messages"))


EXCEPTION_HANDLERS: dict[Any, Callable[..., Any]] = {
    ApiError: _refuse,
    RequestValidationError: _refuse_shape,
    HTTPException: _refuse_path,
    PagedChatError: _fail,
}
