"""What a user gets doesn't depend on the cache: greedy replies equal those without it, and transformers' own.

Chats go on, branch off, are edited and retried, in a pool so small that blocks are evicted all the time.
"""

import random
from collections.abc import Iterator

import pytest

from default_model_oracle import transformers_llama
from foretelling import ForetellingDrafter, from_replies
from paged_chat.engine import ChatMessage, Engine
from replies import ask, greedy, transformers_model, transformers_reply

# Seven families, thirty chats each: 210 chats.
FAMILIES = ("llama", "llama3", "mistral", "qwen2", "qwen2-window", "qwen3", "smollm3")
NUM_CHATS = 30
NUM_BLOCKS, MAX_TOKENS = 20, 4


class RandomChats:
    """Prompts for the chats of one model; `reply` says what the last of them was answered."""

    def __init__(self, seed: int, num_chats: int, vocab_size: int) -> None:
        self._random = random.Random(seed)
        self._num_chats = num_chats
        self._vocab_size = vocab_size
        self._systems = [self._tokens(length) for length in (16, 21, 40)]
        self.prompts: list[list[int]] = []
        self._turns: list[list[int]] = []  # of the chat that is going on: each prompt with its reply

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self._num_chats):
            self._turns = []
            prompt = [*self._random.choice(self._systems), *self._tokens(self._random.randint(1, 20))]
            for _ in range(self._random.randint(2, 4)):
                self.prompts.append(prompt)
                yield prompt
                prompt = self._next(prompt)

    def reply(self, token_ids: tuple[int, ...]) -> None:
        self._turns.append([*self.prompts[-1], *token_ids])

    def _next(self, prompt: list[int]) -> list[int]:
        how = self._random.choice(("go on", "go on", "go on", "branch", "edit", "retry"))
        if how == "retry":
            return prompt
        if how == "edit":
            cut = self._random.randint(1, len(prompt))
            return [*prompt[:cut], *self._tokens(self._random.randint(1, 9))]
        turn = self._turns[-1] if how == "go on" else self._random.choice(self._turns)
        return [*turn, *self._tokens(self._random.randint(1, 20))]

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(3, self._vocab_size) for _ in range(count)]


def converse(engine: Engine, chats: RandomChats) -> list[tuple[int, ...]]:
    """Asks one prompt after the other; the replies in order."""
    replies = []
    for prompt in chats:
        [sample] = ask(engine, prompt, greedy(MAX_TOKENS)).samples
        chats.reply(sample.token_ids)
        replies.append(sample.token_ids)
    return replies


@pytest.mark.parametrize("family", FAMILIES)
def test_replies_over_random_chats_are_those_without_a_cache_and_transformers_own(make_engine, tiny_model, family):
    seed = FAMILIES.index(family)
    chats = RandomChats(seed, NUM_CHATS, vocab_size=320)
    block_size = 16 if seed % 2 == 0 else 8
    num_blocks = 1 + (NUM_BLOCKS - 1) * 16 // block_size
    cached = make_engine(family, num_blocks=num_blocks, block_size=block_size, max_num_batched_tokens=48)
    replies = converse(cached, chats)

    plain = make_engine(family, num_blocks=512, prefix_caching=False)
    outputs = plain.generate(chats.prompts, greedy(MAX_TOKENS))
    assert [output.samples[0].token_ids for output in outputs] == replies

    model = transformers_model(tiny_model(family))
    for prompt, reply in zip(chats.prompts, replies, strict=True):
        assert transformers_reply(model, prompt, MAX_TOKENS) == reply

    snapshot = cached.snapshot()
    assert min(snapshot.hits, snapshot.evictions, snapshot.copies) > 20
    assert snapshot.hits + snapshot.misses == sum(len(prompt) for prompt in chats.prompts)


@pytest.mark.parametrize("family", FAMILIES)
def test_replies_with_tokens_guessed_ahead_are_transformers_own(make_engine, tiny_model, family):
    """Drafts of any length, of which any beginning is right."""
    generator = random.Random(FAMILIES.index(family))
    model = transformers_model(tiny_model(family))
    prompts = [[generator.randrange(3, 320) for _ in range(length)] for length in (5, 16, 40)]
    replies = {tuple(prompt): transformers_reply(model, prompt, 24) for prompt in prompts}
    engine = make_engine(family)
    engine._core.scheduler.drafter = ForetellingDrafter(foretell=from_replies(replies))
    for prompt, output in zip(prompts, engine.generate(prompts, greedy(24)), strict=True):
        assert output.samples[0].token_ids == replies[tuple(prompt)]
    assert engine.snapshot().accepted_tokens > 10


def test_a_long_reply_that_goes_round_in_circles_is_guessed_from_itself(make_engine, tiny_model):
    prompt = list(range(10, 25))
    reply = transformers_reply(transformers_model(tiny_model("qwen3")), prompt, 60)
    engine = make_engine("qwen3")
    [sample] = ask(engine, prompt, greedy(60)).samples
    assert sample.token_ids == reply
    assert sample.stats.num_accepted_tokens > 0


@pytest.mark.parametrize("kernels", ["cpu", "reference"])
def test_chats_that_run_side_by_side_get_the_same_replies(make_engine, kernels):
    chats = [RandomChats(seed, 6, vocab_size=320) for seed in range(10, 14)]
    cached = make_engine(num_blocks=24, kernels=kernels, max_num_batched_tokens=40, max_num_seqs=3)
    asked: list[tuple[list[int], tuple[int, ...]]] = []
    going = [(own, iter(own)) for own in chats]
    while going:
        turns = [(own, prompts, next(prompts, None)) for own, prompts in going]
        going = [(own, prompts) for own, prompts, prompt in turns if prompt is not None]
        prompts_now = [(own, prompt) for own, _, prompt in turns if prompt is not None]
        outputs = cached.generate([prompt for _, prompt in prompts_now], greedy(MAX_TOKENS))
        for (own, prompt), output in zip(prompts_now, outputs, strict=True):
            own.reply(output.samples[0].token_ids)
            asked.append((prompt, output.samples[0].token_ids))
    plain = make_engine(num_blocks=512, prefix_caching=False, kernels=kernels)
    outputs = plain.generate([prompt for prompt, _ in asked], greedy(MAX_TOKENS))
    assert [output.samples[0].token_ids for output in outputs] == [reply for _, reply in asked]
    assert cached.snapshot().evictions > 20


def test_five_chats_on_the_default_model(make_engine, default_model, default_model_path):
    """Real words; each chat goes on, is retried, and branches off its first turn."""
    cached = make_engine(model=default_model, num_blocks=48)
    plain = make_engine(model=default_model, num_blocks=128, prefix_caching=False)
    model = transformers_llama(default_model_path)
    questions = [
        ("What is the capital of France?", "And of Italy?", "And of Spain?"),
        ("Write a haiku about rain.", "Now about snow.", "Explain it."),
        ("Name three fruits.", "Which is red?", "Spell it backwards."),
        ("Was ist 2 + 2?", "Und 3 + 3?", "日本語で答えて。"),
        ("def add(a, b):", "Add types.", "👩‍👩‍👧?"),
    ]
    replies: dict[tuple[int, ...], tuple[int, ...]] = {}
    for first, second, branch in questions:
        chat = [ChatMessage("user", first)]
        first_prompt = cached.encode_chat(chat)
        [sample] = ask(cached, first_prompt, greedy(MAX_TOKENS)).samples
        assert ask(cached, first_prompt, greedy(MAX_TOKENS)).samples[0].token_ids == sample.token_ids
        replies[tuple(first_prompt)] = sample.token_ids
        chat.append(ChatMessage("assistant", sample.text, token_ids=sample.token_ids))
        for question in (second, branch):
            prompt = cached.encode_chat([*chat, ChatMessage("user", question)])
            output = ask(cached, prompt, greedy(MAX_TOKENS))
            # The whole first turn but its last token, which was sampled and never read.
            assert output.num_cached_tokens >= len(first_prompt) + MAX_TOKENS - 1
            replies[tuple(prompt)] = output.samples[0].token_ids
    assert len(replies) == 15
    outputs = plain.generate(list(replies), greedy(MAX_TOKENS))
    assert [output.samples[0].token_ids for output in outputs] == list(replies.values())
    for prompt, reply in replies.items():
        assert transformers_reply(model, prompt, MAX_TOKENS) == reply
