"""One question under several settings: written side by side, kept with their names, compared, gone on with."""

from dataclasses import replace

import pytest

from chat_desk import until
from paged_chat.app.chats import ReplyVariant
from paged_chat.app.comparison.variant import Variant, variant_in
from paged_chat.app.errors import ComparisonRefused
from paged_chat.engine.request import SamplingParams
from patience import PATIENCE_S

COLD = Variant(name="cold", sampling=SamplingParams(temperature=0.0, seed=3, max_tokens=None))
HOT = Variant(name="hot", sampling=SamplingParams(temperature=1.2, max_tokens=None))
TERSE = Variant(name="terse", sampling=SamplingParams(max_tokens=None), system_prompt="Be brief.")


@pytest.fixture
def chat(desk):
    return desk.service.create_chat(sampling=SamplingParams(temperature=0.7, max_tokens=None))


def compare(desk, chat, text, variants, replies):
    """Asks, has each variant answered with its reply, and gives them as they are stored."""
    for reply in replies:
        desk.fake.enqueue(reply)
    turn = desk.service.compare(chat.id, text, variants)
    desk.finish(chat)
    return [desk.service.message(chat.id, reply.id) for reply in turn.replies]


def test_each_variant_answers_the_same_message_under_its_own_name_and_settings(desk, chat):
    replies = compare(desk, chat, "pet?", [COLD, HOT, TERSE], ["a cat", "a newt", "cat"])
    assert [reply.text for reply in replies] == ["a cat", "a newt", "cat"]
    assert [reply.variant for reply in replies] == [
        ReplyVariant("cold"),
        ReplyVariant("hot"),
        ReplyVariant("terse", "Be brief."),
    ]
    assert [reply.sampling.temperature for reply in replies] == [0.0, 1.2, 0.0]
    [question] = {reply.parent_id for reply in replies}
    assert desk.service.message(chat.id, question).text == "pet?"
    [model] = desk.fake.models
    assert model.prompts() == [
        "<s>user:pet?</s>assistant:",
        "<s>user:pet?</s>assistant:",
        "<s>system:Be brief.</s>user:pet?</s>assistant:",
    ]


def test_variants_without_a_seed_draw_with_the_same_one(desk, chat):
    cold, hot, terse = compare(desk, chat, "pet?", [COLD, HOT, TERSE], ["a", "b", "c"])
    assert cold.sampling.seed == 3
    assert hot.sampling.seed == terse.sampling.seed


def test_they_grow_together_and_each_can_be_stopped(desk, chat):
    desk.fake.hold()
    for reply in ("abcdef", "uvwxyz"):
        desk.fake.enqueue(reply)
    turn = desk.service.compare(chat.id, "go", [COLD, HOT])
    until(lambda: desk.fake.models and len(desk.fake.models[0].submitted) == 2)
    desk.fake.let(4)  # the second waits one step for the blocks of the first
    until(lambda: [reply.text for reply in desk.service.running(chat.id)] == ["abcd", "uvw"])
    desk.service.stop(chat.id, turn.replies[0].id)
    desk.fake.go()
    desk.finish(chat)
    first, second = map(desk.stored, turn.replies)
    assert (first.status, first.text in ("abcd", "abcde")) == ("stopped", True)
    assert (second.status, second.text) == ("done", "uvwxyz")


def test_the_same_prompt_is_computed_once_and_another_system_prompt_shares_nothing(desk, chat):
    text = "a question of some length, over several blocks"
    desk.fake.hold()
    turn = desk.service.compare(chat.id, text, [COLD, HOT, TERSE])
    until(lambda: desk.fake.models and len(desk.fake.models[0].submitted) == 3)
    desk.fake.go()
    desk.finish(chat)
    cold, hot, terse = map(desk.stored, turn.replies)
    prompt = [cost.num_cached_tokens + cost.num_computed_tokens for cost in (cold.cost, hot.cost, terse.cost)]
    assert prompt == [63, 63, 80]
    assert [reply.cost.num_cached_tokens for reply in (cold, hot, terse)] == [0, 48, 0]  # whole blocks


def test_the_plan_names_each_prompt_once(desk, chat):
    plan = desk.service.plans.compare(chat.id, "pet?", [COLD, HOT]).result()
    assert str(plan) == "2 replies to one prompt: reuses nothing, computes 21 tokens"
    plan = desk.service.plans.compare(chat.id, "pet?", [COLD, HOT, TERSE]).result()
    assert str(plan) == (
        "2 prompts, which share nothing but what their system prompts do. "
        "cold, hot: reuses nothing, computes 21 tokens; terse: reuses nothing, computes 38 tokens"
    )


def test_one_bad_variant_has_all_refused_and_nothing_stored(desk, chat):
    desk.service.save_sampling_preset("warm", SamplingParams(temperature=1.0))
    kept = desk.service.kept_settings()
    words = ["warm", "temperature=900", "nosuch", "beam_width=2", "system=poet", "top_p=x"]
    with pytest.raises(ComparisonRefused) as refused:
        desk.service.variants(chat.id, [variant_in(word, kept) for word in words])
    assert str(refused.value).split("; ") == [
        "temperature 900: temperature must be at least 0 and at most 100, not 900",
        "nosuch: no settings are kept as 'nosuch', and a setting is name=value",
        "beam width 2: beam width 2 looks for the likeliest replies and draws nothing: set temperature to 0 instead of "
        "0.7, or beam width to 1",
        "system poet: no system prompt is kept as 'poet'",
        "top p x: top p must be above 0 and at most 1, not 'x'",
    ]
    assert len(desk.store.tree(chat.id)) == 0


@pytest.mark.parametrize(
    ("variants", "why"),
    [
        ([COLD], "a comparison has 2 to 6 variants, not 1"),
        ([replace(COLD, name=str(i)) for i in range(7)], "a comparison has 2 to 6 variants, not 7"),
        ([COLD, replace(HOT, name="cold")], "two variants are called 'cold': change one of them, or give it another"),
    ],
)
def test_too_few_too_many_and_two_of_one_name_are_refused(desk, chat, variants, why):
    with pytest.raises(ComparisonRefused, match=why):
        desk.service.compare(chat.id, "go", variants)
    assert len(desk.store.tree(chat.id)) == 0


def test_a_variant_whose_prompt_does_not_fit_is_named(desk, chat):
    desk.ask(chat, "warm up", "yes")
    long = replace(TERSE, name="long", system_prompt="x" * 5000)
    with pytest.raises(ComparisonRefused, match=r"^long: the system prompt has 5,000 tokens"):
        desk.service.compare(chat.id, "go", [COLD, long])
    assert desk.texts(chat) == ["warm up", "yes"]


def test_a_cut_reply_goes_on_under_its_own_system_prompt(desk, chat):
    cut = replace(TERSE, sampling=SamplingParams(max_tokens=3))
    _, reply = compare(desk, chat, "pet?", [COLD, cut], ["a", "cats"])
    assert (reply.text, reply.finish_reason) == ("cat", "length")
    desk.fake.enqueue("s")
    desk.service.continue_reply(chat.id, reply.id)
    desk.finish(chat)
    assert desk.fake.models[0].prompts()[-1] == "<s>system:Be brief.</s>user:pet?</s>assistant:cat"
    assert desk.stored(reply).variant == ReplyVariant("terse", "Be brief.")


def test_what_else_could_stand_in_it_is_worked_out_under_its_own_system_prompt(desk, chat):
    _, reply = compare(desk, chat, "pet?", [COLD, TERSE], ["a", "cat"])
    desk.fake.enqueue("c")
    token = desk.service.tokens.alternatives_at(chat.id, reply.id, 1).result(PATIENCE_S)
    assert token.piece.text == "a"
    assert desk.fake.models[0].prompts()[-1] == "<s>system:Be brief.</s>user:pet?</s>assistant:c"


def test_replies_are_compared_by_what_differs(desk, chat):
    replies = compare(desk, chat, "pet?", [COLD, TERSE], ["a cat", "a dog"])
    comparison = desk.service.comparison(chat.id, [reply.id for reply in replies])
    assert comparison.question == "pet?"
    assert [reply.name for reply in comparison.replies] == ["cold", "terse"]
    assert comparison.replies[1].settings["system prompt"] == "Be brief."
    assert "temperature" not in comparison.replies[0].settings
    assert [reply.finish for reply in comparison.replies] == ["stop", "stop"]


def test_siblings_of_any_origin_are_compared_and_others_refused(desk, chat):
    first, second = desk.ask(chat, "pet?", "a cat", "a dog")
    comparison = desk.service.comparison(chat.id, [second.id, first.id])
    assert [(reply.name, reply.text) for reply in comparison.replies] == [("Reply 1", "a cat"), ("Reply 2", "a dog")]
    assert list(comparison.replies[0].settings) == ["seed"]
    with pytest.raises(ComparisonRefused, match="there is one reply"):
        desk.service.comparison(chat.id, [first.id])
    with pytest.raises(ComparisonRefused, match="only replies to the same message"):
        desk.service.comparison(chat.id, [first.id, first.parent_id])


def test_a_fork_and_a_kept_chat_keep_the_variant(desk):
    temporary = desk.service.create_chat(is_temporary=True)
    replies = compare(desk, temporary, "pet?", [COLD, TERSE], ["a", "b"])
    kept = desk.service.keep_chat(temporary.id)
    stored = [message for message in desk.service.tree(kept.id) if message.role == "assistant"]
    assert [message.variant for message in stored] == [reply.variant for reply in replies]
    fork = desk.service.fork(kept.id, stored[1].id)
    assert desk.service.tree(fork.id).path(fork.active_leaf_id)[-1].variant == ReplyVariant("terse", "Be brief.")
