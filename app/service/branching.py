"""Branches from within a reply: what its tokens could have been, and a sibling that takes one of those and goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from paged_chat.engine.request import SamplingParams, TokenLogprobs

from ..chats import Chat, KeptLogprobs, Message, MessageTree, NewReply
from ..errors import CannotBranch
from ..token_view.reply_tokens import ReplyToken, ReplyTokens, reply_token, reply_tokens
from ..token_view.token_piece import TokenPiece, spell
from ..transcript.transcript import ContextPlan
from .engine_host import LoadedEngine
from .new_turn import find_whole, new_replies, question_of, request_params
from .prompts import look_up
from .send_plan import SendPlan
from .weighing import weigh_next

DEFAULT_NUM_TOP = 5
MAX_TOKEN_ID = 2**31 - 1


def reply_in(tree: MessageTree, message_id: int) -> Message:
    """A whole reply; raises CannotBranch for what a person wrote, ReplyRunning, MessageNotFound."""
    message = find_whole(tree, message_id)
    if message.role != "assistant":
        raise CannotBranch("only a reply has tokens to choose from: edit your message to write it anew")
    return message


def read_tokens(loaded: LoadedEngine, reply: Message, logprobs: KeptLogprobs) -> ReplyTokens:
    """The reply as this model reads it; what was kept for ids of another vocabulary means nothing."""
    token_ids = loaded.transcript.token_ids_of(reply)
    kept = logprobs if token_ids == reply.token_ids else ()
    return reply_tokens(reply.id, reply.model, token_ids, kept, _speller(loaded))


def plan_branch(loaded: LoadedEngine, chat: Chat, tree: MessageTree, reply: Message, token_index: int) -> SendPlan:
    """What a branch at this token would reuse and compute, whichever token is taken; raises as `new_branch` does.

    Working out the alternatives there costs the same: one token, if everything before it is cached.
    """
    path, context = _context_of(loaded, chat, tree, reply, token_index, num_taken=1)
    return look_up(loaded, chat, path, context)


def weigh_token(
    loaded: LoadedEngine, chat: Chat, tree: MessageTree, reply: Message, token_index: int
) -> Future[TokenLogprobs]:
    """How likely the model holds each token in the place of this one; nothing of it is stored."""
    _, context = _context_of(loaded, chat, tree, reply, token_index, num_taken=0)
    num_prompt_tokens = context.num_tokens - token_index
    return weigh_next(loaded, context.token_ids[:num_prompt_tokens], context.reply_token_ids, chat.user)


def weighed_token(loaded: LoadedEngine, reply: Message, token_index: int, weighed: TokenLogprobs) -> ReplyToken:
    """The token with the likeliest of its alternatives; its own probability if it is among those that are known."""
    token_id = loaded.transcript.token_ids_of(reply)[token_index]
    return reply_token(token_index, token_id, weighed.top, DEFAULT_NUM_TOP, _speller(loaded))


def _context_of(
    loaded: LoadedEngine, chat: Chat, tree: MessageTree, reply: Message, token_index: int, *, num_taken: int
) -> tuple[list[Message], ContextPlan]:
    """The path to the question, and the prompt up to this token, with so many more of the reply."""
    token_ids = loaded.transcript.token_ids_of(reply)
    _check_index(token_ids, token_index)
    path = tree.path(question_of(tree, reply.id))
    start = token_ids[: token_index + num_taken]
    return path, loaded.transcript.preview(chat.system_prompt, path, reply_start=start)


def _speller(loaded: LoadedEngine) -> Callable[[tuple[int, ...]], Sequence[TokenPiece]]:
    return lambda token_ids: loaded.served.call(spell.ask(token_ids)).result()


def new_branch(
    loaded: LoadedEngine,
    chat: Chat,
    tree: MessageTree,
    reply: Message,
    logprobs: KeptLogprobs,
    token_index: int,
    token_id: int,
) -> NewReply:
    """A reply with the ids before a token, and another one in its place; drawn as the reply was, with other numbers.

    Raises CannotBranch for a place or an id that there isn't; PromptTooLong.
    """
    token_ids = loaded.transcript.token_ids_of(reply)
    _check_index(token_ids, token_index)
    if not 0 <= token_id <= MAX_TOKEN_ID:  # the engine refuses what its vocabulary doesn't have
        raise CannotBranch(f"there is no token {token_id}: open the reply's tokens again")
    start = (*token_ids[:token_index], token_id)
    question_id = question_of(tree, reply.id)
    loaded.transcript.preview(chat.system_prompt, tree.path(question_id), reply_start=start)
    kept = logprobs if token_ids == reply.token_ids else ()
    sampling = _sampling(chat, reply, has_alternatives=bool(kept))
    [new] = new_replies(loaded.model, request_params(sampling, 1, len(tree.children(question_id))))
    return replace(
        new,
        variant=reply.variant,
        text=loaded.engine.decode(start).removesuffix("\ufffd"),
        token_ids=start,
        logprobs=_kept_for(kept, token_index, token_id),
    )


def params_of(branch: NewReply) -> SamplingParams:
    """How its request is drawn: a place behind the longest length, where a reply was continued, gives as much again."""
    longest = branch.sampling.max_tokens
    if longest is None:
        return branch.sampling
    return replace(branch.sampling, max_tokens=longest * (len(branch.token_ids) // longest + 1))


def _sampling(chat: Chat, reply: Message, *, has_alternatives: bool) -> SamplingParams:
    """As the reply was drawn; a branch of one whose alternatives were kept keeps its own."""
    sampling = replace(reply.sampling or chat.sampling, seed=chat.sampling.seed)
    if sampling.logprobs is None:
        num_top = DEFAULT_NUM_TOP if has_alternatives else chat.sampling.logprobs
        sampling = replace(sampling, logprobs=num_top)
    return sampling


def _kept_for(kept: KeptLogprobs, token_index: int, token_id: int) -> KeptLogprobs:
    """What is known of the tokens that a branch begins with: of the new one, what was kept of it as an alternative."""
    if not kept:
        return ()
    instead = kept[token_index]
    if instead is not None:
        logprob = dict([*instead.top, (instead.token_id, instead.logprob)]).get(token_id)
        instead = None if logprob is None else TokenLogprobs(token_id, logprob, instead.top)
    return (*kept[:token_index], instead)


def _check_index(token_ids: Sequence[int], token_index: int) -> None:
    if not 0 <= token_index < len(token_ids):
        raise CannotBranch(
            f"this reply has no token {token_index + 1}: it has {len(token_ids):,}; open its tokens again"
        )
