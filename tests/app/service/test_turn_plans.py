"""What a turn would cost, planned before it is begun."""

import pytest

from chat_desk import updates_of
from paged_chat.app.attachments import Attachment
from paged_chat.app.comparison.variant import WrittenVariant
from paged_chat.app.errors import MessageNotFound
from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.prefill_speed import Work, num_attended
from paged_chat.engine.request import SamplingParams
from patience import PATIENCE_S


def test_the_first_message_of_a_chat_has_its_cost_before_there_is_the_chat(desk, service):
    desk.ask(service.create_chat(system_prompt="Be brief."), "Tell me about Lisbon", "It lies on seven hills")
    same = service.plans.first("Tell me about Porto", system_prompt="Be brief.").result(PATIENCE_S)
    assert len(service.chats()) == 1
    chat = service.create_chat(system_prompt="Be brief.")
    assert same == service.plans.send(chat.id, "Tell me about Porto").result(PATIENCE_S)
    assert str(same) == "reuses 2 blocks and 5 tokens, computes 16 tokens"
    assert service.plans.first("Tell me about Porto", user="ann").result(PATIENCE_S).num_reused_tokens == 0
    variants = service.variants(None, [WrittenVariant(system_prompt="Be brief."), WrittenVariant()])
    compared = service.plans.compare_first("Tell me about Porto", variants).result(PATIENCE_S)
    [(_, brief), (_, alone)] = compared.prompts
    assert (brief, alone.num_reused_tokens) == (same, 1)


def test_a_plan_says_what_sending_would_reuse_and_compute(desk, service):
    chat = service.create_chat()
    desk.ask(chat, "Tell me about Lisbon", "It lies on seven hills")
    plan = service.plans.send(chat.id, "And Porto?").result(PATIENCE_S)
    [reply] = desk.ask(chat, "And Porto?", "On two")
    assert (plan.num_reused_tokens, plan.num_computed_tokens) == (
        reply.cost.num_cached_tokens,
        reply.cost.num_computed_tokens,
    )
    assert plan.num_prompt_tokens == len(desk.fake.models[0].submitted[1][0])
    assert plan.window == 4096
    num_blocks, num_more = divmod(plan.num_reused_tokens, 16)
    assert str(plan) == (
        f"reuses {num_blocks} blocks and {num_more} tokens, computes {plan.num_computed_tokens} tokens"
    )


def test_a_plan_below_a_message_that_is_gone_says_so(desk, service):
    chat = service.create_chat()
    with pytest.raises(MessageNotFound):
        service.plans.send(chat.id, "More", parent_id=999)


def test_planning_stores_nothing_and_changes_nothing_in_the_pool(desk, service):
    chat = service.create_chat()
    before = service.ask_engine(lambda engine: engine.snapshot()).result(PATIENCE_S)
    service.plans.send(chat.id, "A question", attachments=[Attachment("a.txt", "text")]).result(PATIENCE_S)
    assert service.ask_engine(lambda engine: engine.snapshot()).result(PATIENCE_S) == before
    assert (len(service.tree(chat.id)), service.version(chat.id)) == (0, chat.version)


def test_edits_and_retries_are_planned_too(desk, service):
    chat = service.create_chat()
    [reply] = desk.ask(chat, "Tell me about Lisbon", "It lies on seven hills")
    retried = service.plans.retry(chat.id, reply.id).result(PATIENCE_S)
    assert retried.num_computed_tokens == 1
    edited = service.plans.edit(chat.id, reply.parent_id, "Tell me about Porto").result(PATIENCE_S)
    assert edited.num_reused_tokens == 1 + len("user:Tell me about ")
    with pytest.raises(InvalidParameter):
        service.plans.edit(chat.id, reply.id, "x")


def test_forks_and_continuing_are_planned_too(desk, service):
    chat = service.create_chat(sampling=SamplingParams(max_tokens=8))
    [reply] = desk.ask(chat, "Tell me about Lisbon", "It lies on seven hills")
    assert reply.finish_reason == "length"
    num_prompt = len(desk.fake.models[0].submitted[0][0])
    continued = service.plans.continue_reply(chat.id, reply.id).result(PATIENCE_S)
    # The prompt and the reply but for its last token, which nobody has read yet.
    assert (continued.num_prompt_tokens, continued.num_reused_tokens) == (num_prompt + 8, num_prompt + 7)
    with pytest.raises(InvalidParameter, match="only a reply can be continued"):
        service.plans.continue_reply(chat.id, reply.parent_id)
    forked = service.plans.fork(chat.id, reply.id).result(PATIENCE_S)
    assert forked.num_reused_tokens == num_prompt + 7
    assert forked.num_computed_tokens == 1 + len("</s>user:</s>assistant:") - 2 * 3
    at_question = service.plans.fork(chat.id, reply.parent_id).result(PATIENCE_S)
    assert at_question.num_computed_tokens == 1
    # What was planned is what a fork finds.
    fork = service.fork(chat.id, reply.id)
    [planned] = [service.plans.send(fork.id, "And Porto?").result(PATIENCE_S)]
    assert planned.num_reused_tokens == forked.num_reused_tokens


def test_the_time_to_the_first_token_is_planned_once_enough_was_measured(desk, service):
    chat = service.create_chat()
    text = "Tell me about Lisbon"
    assert service.plans.send(chat.id, text).result(PATIENCE_S).expected_ttft is None
    speed = service.ask_engine(lambda engine: engine._core._speed).result(PATIENCE_S)
    for num_tokens in (20, 40, 80):
        speed.add(Work(1, num_tokens, num_attended(0, num_tokens)), 0.3 + 0.005 * num_tokens, is_done=True)
    plan = service.plans.send(chat.id, text).result(PATIENCE_S)
    assert plan.expected_ttft.seconds == pytest.approx(0.3 + 0.005 * plan.num_computed_tokens)
    assert str(plan) == f"reuses nothing, computes {plan.num_computed_tokens} tokens, first token in ~0.5 s"


def test_tokens_are_counted(service):
    assert service.tokens.count("Lisbon").result(PATIENCE_S) == 6


def test_the_reply_itself_says_what_it_reuses(desk, service):
    chat = service.create_chat()
    desk.ask(chat, "Lisbon", "Sunny")
    desk.fake.enqueue("Rainy")
    service.send(chat.id, "Porto")
    last = updates_of(desk.finish(chat))[-1]
    assert last.plan.num_reused_tokens == last.cost.num_cached_tokens
    assert last.request_id == "r2"
