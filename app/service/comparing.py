"""One question under several settings: its replies, what they would cost, and those that stand beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paged_chat.engine.errors import PromptTooLong

from ..chats import Chat, Message, MessageTree, NewReply, ReplyVariant
from ..comparison.comparison import Comparison, compare_replies
from ..comparison.variant import MIN_VARIANTS, Variant
from ..errors import ComparisonRefused
from .engine_host import LoadedEngine
from .new_turn import drawn_seed, question_of
from .prompts import check_fits, preview
from .send_plan import SendPlan


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """The prompts of a comparison: each with the names of the variants that it is the prompt of."""

    prompts: tuple[tuple[tuple[str, ...], SendPlan], ...]

    def __str__(self) -> str:
        """Such as "2 replies to one prompt: reuses 3 blocks and 2 tokens, computes 12 tokens"."""
        if len(self.prompts) == 1:
            names, plan = self.prompts[0]
            return f"{len(names)} replies to one prompt: {plan}"
        words = "; ".join(f"{', '.join(names)}: {plan}" for names, plan in self.prompts)
        return f"{len(self.prompts)} prompts, which share nothing but what their system prompts do. {words}"


def compared_replies(model: str, variants: Sequence[Variant]) -> list[NewReply]:
    """One for each variant. Those without a seed draw with the same one, so that settings alone make a difference."""
    seed = drawn_seed()
    return [
        NewReply(
            model=model,
            sampling=replace(
                variant.sampling, n=1, seed=seed if variant.sampling.seed is None else variant.sampling.seed
            ),
            variant=ReplyVariant(variant.name, variant.system_prompt),
        )
        for variant in variants
    ]


def under_variant(chat: Chat, reply: Message) -> Chat:
    """The chat as it was for a reply: with the system prompt that a comparison gave it."""
    return chat if reply.variant is None else replace(chat, system_prompt=reply.variant.system_prompt)


def check_all_fit(loaded: LoadedEngine, chat: Chat, text: str, variants: Sequence[Variant]) -> None:
    """Raises ComparisonRefused with each variant under which the message has no place in the window."""
    faults = []
    for variant in variants:
        try:
            check_fits(loaded, _under(chat, variant), text, variant.sampling.max_tokens)
        except PromptTooLong as error:
            faults.append(f"{variant.name}: {error}")
    if faults:
        raise ComparisonRefused("; ".join(faults))


def plan_comparison(
    loaded: LoadedEngine, chat: Chat, path: Sequence[Message], text: str, variants: Sequence[Variant]
) -> ComparisonPlan:
    """Each prompt once: variants with the same system prompt, and the same room for a reply, share it."""
    sharing: dict[tuple[str | None, int | None], list[Variant]] = {}
    for variant in variants:
        sharing.setdefault((variant.system_prompt, variant.sampling.max_tokens), []).append(variant)
    prompts = []
    for (system_prompt, max_tokens), group in sharing.items():
        plan = preview(loaded, replace(chat, system_prompt=system_prompt), path, text, max_tokens)
        prompts.append((tuple(variant.name for variant in group), plan))
    return ComparisonPlan(tuple(prompts))


def comparison_in(tree: MessageTree, reply_ids: Sequence[int]) -> Comparison:
    """Raises ComparisonRefused for fewer than two replies, or for messages that don't answer the same one."""
    replies = [tree.find(reply_id) for reply_id in sorted(set(reply_ids))]
    if len(replies) < MIN_VARIANTS:
        raise ComparisonRefused("there is one reply: retry it, or ask with several settings, to compare")
    if len({reply.parent_id for reply in replies}) > 1 or any(reply.role != "assistant" for reply in replies):
        raise ComparisonRefused("only replies to the same message can be compared")
    return compare_replies(tree[question_of(tree, replies[0].id)].text, replies)


def _under(chat: Chat, variant: Variant) -> Chat:
    return replace(chat, system_prompt=variant.system_prompt)
