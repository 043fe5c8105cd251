"""The page's requests about comparisons: what can be compared, asking it, how replies differ, and their table."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from paged_chat.engine.number_range import NumberRange
from paged_chat.engine.request import RANGES

from ..comparison.table import TableForm, write_table
from ..comparison.variant import MAX_NAME_LENGTH, MAX_VARIANTS, MIN_VARIANTS, WrittenVariant
from ..comparison.words import diff_legend
from ..service.comparing import ComparisonPlan
from .access import OwnChat, ServiceOf, User
from .download import download
from .plan_answer import plan_answer
from .requests import Question
from .routes import turn_answer
from .settings import MAX_EXACT, MAX_SYSTEM_PROMPT_LENGTH

MAX_SETTING_LENGTH = 2000  # stop texts may be long

router = APIRouter(prefix="/paged-chat")
Answer = dict[str, Any]
ReplyIds = Annotated[list[int], Query(max_length=64)]


class VariantFields(BaseModel):
    """A variant as the dialog holds it; what is "" or missing is the chat's own."""

    name: Annotated[str, Field(max_length=MAX_NAME_LENGTH)] = ""
    preset: str | None = None
    changes: dict[str, Annotated[str, Field(max_length=MAX_SETTING_LENGTH)]] = {}
    system: str | None = None
    system_prompt: Annotated[str, Field(max_length=MAX_SYSTEM_PROMPT_LENGTH)] | None = None

    def written(self) -> WrittenVariant:
        return WrittenVariant(**self.model_dump())


class Variants(BaseModel):
    """What is to be compared in a chat, or in one that isn't begun yet."""

    chat_id: str | None = None
    variants: Annotated[list[VariantFields], Field(max_length=4 * MAX_VARIANTS)]


class ComparedQuestion(Question):
    """A message to send under each of the variants."""

    variants: Annotated[list[VariantFields], Field(max_length=4 * MAX_VARIANTS)]

    @property
    def written(self) -> list[WrittenVariant]:
        return [variant.written() for variant in self.variants]


@router.get("/comparison-form")
def comparison_form(service: ServiceOf, user: User) -> Answer:
    """What the dialog offers, and what its fields may hold: numbers as an <input> has its limits."""
    kept = service.kept_settings()
    return {
        "presets": list(kept.presets),
        "system_prompts": list(kept.system_prompts),
        "num_variants": (MIN_VARIANTS, MAX_VARIANTS),
        "limits": {name: _limits(allowed) for name, allowed in RANGES.items()},
        "longest": {"name": MAX_NAME_LENGTH, "setting": MAX_SETTING_LENGTH},
    }


def _limits(allowed: NumberRange) -> Answer:
    return {
        "min": allowed.least,
        "max": min(allowed.most, MAX_EXACT),
        "step": 1 if allowed.is_whole else "any",
    }


@router.post("/variants")
def check_variants(asked: Variants, service: ServiceOf, user: User) -> Answer:
    """The names of the variants, if all of them can be used."""
    if asked.chat_id is not None:
        service.chat(asked.chat_id, user)
    variants = service.variants(asked.chat_id, [variant.written() for variant in asked.variants])
    return {"names": [variant.name for variant in variants]}


@router.post("/chats/{chat_id}/compare")
def compare(question: ComparedQuestion, chat: OwnChat, service: ServiceOf) -> Answer:
    variants = service.variants(chat.id, question.written)
    return turn_answer(
        service.compare(chat.id, question.text, variants, parent_id=question.parent_id, attachments=question.attached)
    )


@router.post("/chats/{chat_id}/plan-comparison")
async def plan_comparison(question: ComparedQuestion, chat: OwnChat, service: ServiceOf) -> Answer:
    def find_plan() -> Future[ComparisonPlan]:
        variants = service.variants(chat.id, question.written)
        return service.plans.compare(
            chat.id, question.text, variants, parent_id=question.parent_id, attachments=question.attached
        )

    return await plan_answer(find_plan)


@router.post("/plan-comparison")
async def plan_first_comparison(question: ComparedQuestion, service: ServiceOf, user: User) -> Answer:
    """The same in a chat that isn't begun yet."""

    def find_plan() -> Future[ComparisonPlan]:
        variants = service.variants(None, question.written)
        return service.plans.compare_first(question.text, variants, user=user, attachments=question.attached)

    return await plan_answer(find_plan)


@router.get("/chats/{chat_id}/diff")
def diff(reply: ReplyIds, reference: int, chat: OwnChat, service: ServiceOf) -> Answer:
    """How each of the replies differs from the reference, in spans of (kind, text)."""
    comparison = service.comparison(chat.id, [*reply, reference])
    spans = comparison.diff(reference)
    name = next(reply.name for reply in comparison.replies if reply.message_id == reference)
    return {
        "legend": diff_legend(name),
        "spans": {id: [(span.kind, span.text) for span in spans[id]] for id in spans if id != reference},
    }


@router.get("/chats/{chat_id}/comparison.{form}")
def table(form: TableForm, reply: ReplyIds, chat: OwnChat, service: ServiceOf) -> Response:
    return download(write_table(service.comparison(chat.id, reply), form), f"{chat.title}, compared", form)
