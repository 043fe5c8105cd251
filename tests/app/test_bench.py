"""`paged-chat bench`: replays token for token, and the result file that comparisons read."""

import json

import pytest

from paged_chat.app.replay import WARM_UP_REPLY_TOKENS, WARM_UP_TOKENS, WorkloadTooLong, replay
from paged_chat.app.workload import Branch, Step, Workload
from paged_chat.engine import Engine, EngineConfig

SYSTEM = tuple(range(10, 50))
END = (2, 198)
REPLY_TOKENS = 7


def turn(chat, *append, **changes):
    return Step(chat=chat, append=append, append_end=END, reply_tokens=REPLY_TOKENS, **changes)


# A chat of three turns, a branch after its first one, and a second chat with the same system prompt.
CHAT = Workload(
    "branchy",
    (
        turn("a", *SYSTEM, 60, 61),
        turn("a", 62, 63, 64),
        turn("a", 65, 66),
        turn("edit", 67, 68, prompt_from=Branch("a", 1)),
        turn("b", *SYSTEM, 70, 71),
    ),
)
# What a turn leaves in the cache: its prompt and its reply but for the last token, whose KV nobody needed yet.
FIRST_HISTORY = len(SYSTEM) + 2 + REPLY_TOKENS + len(END)
SECOND_HISTORY = FIRST_HISTORY + 3 + REPLY_TOKENS + len(END)
UNCOMPUTED = 1 + len(END)


@pytest.fixture
def open_tiny(tiny_model):
    def open_engine(**changes):
        values = {"device": "cpu", "dtype": "float32", "num_blocks": 64, "check_integrity": True} | changes
        return Engine(EngineConfig(model=str(tiny_model("llama")), **values))

    return open_engine


def output_ids(result):
    return [[reply.token_ids for reply in step.answer.replies] for step in result.steps]


def test_every_step_reuses_all_of_its_history_that_was_computed(open_tiny):
    with open_tiny() as engine:
        result = replay(engine, CHAT)
    assert [step.answer.num_prompt_tokens for step in result.steps] == CHAT.prompt_lengths()
    assert [step.answer.num_cached_tokens for step in result.steps] == [
        0,
        FIRST_HISTORY - UNCOMPUTED,
        SECOND_HISTORY - UNCOMPUTED,
        FIRST_HISTORY,  # by now the main chat's next turn has computed the end of the first reply too
        len(SYSTEM),
    ]


def test_the_replies_are_the_same_with_and_without_the_cache(open_tiny):
    with open_tiny() as engine:
        cached = replay(engine, CHAT)
    with open_tiny(prefix_caching=False) as engine:
        uncached = replay(engine, CHAT)
    assert output_ids(cached) == output_ids(uncached)
    assert {step.answer.num_cached_tokens for step in uncached.steps} == {0}
    assert all(len(ids) == REPLY_TOKENS for [ids] in output_ids(cached))


def test_seeded_replies_are_those_of_their_own_seeds(open_tiny):
    together = Workload("n3", (turn("a", *SYSTEM, n=3, temperature=1.0, seed=11),))
    alone = Workload("n1", tuple(turn(str(i), *SYSTEM, temperature=1.0, seed=11 + i) for i in range(3)))
    with open_tiny() as engine:
        [replies] = output_ids(replay(engine, together))
    with open_tiny() as engine:
        assert [[ids] for ids in replies] == output_ids(replay(engine, alone))
    assert len({tuple(ids) for ids in replies}) == 3


def test_the_warm_up_comes_before_the_steps_and_shares_nothing_with_them(scripted):
    result = replay(scripted, Workload("one", (turn("a", 5, 6, 7, 1500),)))
    (warm_up, warm_up_params), (prompt, params) = scripted.submitted
    assert warm_up == list(range(1000, 1000 + WARM_UP_TOKENS))
    assert (warm_up_params.max_tokens, warm_up_params.ignore_eos) == (WARM_UP_REPLY_TOKENS, True)
    assert (prompt, params.max_tokens, params.ignore_eos) == ([5, 6, 7, 1500], REPLY_TOKENS, True)
    assert (params.temperature, params.n, params.seed) == (0.0, 1, None)
    assert [len(step.answer.replies) for step in result.steps] == [1]


def test_a_step_that_does_not_fit_is_refused_before_the_first(scripted):
    scripted.max_model_len = 60
    with pytest.raises(WorkloadTooLong, match="step 2 of branchy has 54 prompt tokens and a reply of 7"):
        replay(scripted, CHAT)
    assert scripted.submitted == []


@pytest.fixture
def workload_file(tmp_path):
    def write(*steps):
        path = tmp_path / "work.json"
        path.write_text(json.dumps({"name": "work", "steps": steps}))
        return path

    return write


STEP = {"chat": "a", "append": list(SYSTEM), "append_end": [2], "reply_tokens": 5, "n": 1}
SAMPLED = {**STEP, "chat": "b", "n": 2, "temperature": 1.0, "seeds": [4, 5]}


def test_the_result_file_holds_what_a_comparison_reads(run_cli, tiny_model, workload_file, tmp_path):
    out = tmp_path / "out.json"
    path, model = workload_file(STEP, SAMPLED), tiny_model("llama")
    ended = run_cli(
        "bench", str(path), "--json", str(out), "--model", str(model), "--dtype", "float32", "--num-blocks", "64"
    )
    assert (ended.code, list(tmp_path.glob(".out*"))) == (0, [])
    result = json.loads(out.read_text())
    assert (result["peer"], result["workload"], result["model"]) == ("project", "work", str(model))
    assert result["load_s"] > 0
    assert result["peak_rss_mib"] > 50
    assert result["others_cores"] >= 0
    greedy, sampled = result["steps"]
    assert (greedy["chat"], greedy["n"], greedy["prompt_tokens"], greedy["cached_tokens"]) == ("a", 1, 40, 0)
    assert 0 < greedy["ttft_ms"] < greedy["total_ms"]
    assert greedy["decode_tokens_per_s"] > 0
    assert [type(token) for token in greedy["output_ids"]] == [int] * 5
    assert (sampled["n"], sampled["cached_tokens"]) == (2, 39)
    assert [len(ids) for ids in sampled["output_ids"]] == [5, 5]
    assert "work on" in ended.out
    assert "Loaded in" in ended.out


def test_no_prefix_cache_reaches_the_engine(run_cli, scripted, workload_file):
    run_cli("bench", str(workload_file(STEP)), "--no-prefix-cache")
    run_cli("bench", str(workload_file(STEP)))
    assert [config.prefix_caching for config in scripted.configs] == [False, True]


def test_a_damaged_workload_exits_1_before_anything_is_loaded(run_cli, scripted, workload_file):
    ended = run_cli("bench", str(workload_file({**STEP, "n": 3, "seeds": [1, 2, 9]})))
    assert (ended.code, scripted.configs) == (1, [])
    assert "steps[0].seeds must be 3 consecutive numbers (one a reply), not [1, 2, 9]" in ended.err


def test_a_result_file_in_a_missing_folder_is_refused_at_once(run_cli, scripted, workload_file, tmp_path):
    ended = run_cli("bench", str(workload_file(STEP)), "--json", str(tmp_path / "missing" / "out.json"))
    assert (ended.code, scripted.configs) == (2, [])
    assert "there is no such folder" in ended.err


def test_bench_without_a_workload_is_a_usage_error(run_cli, scripted):
    assert run_cli("bench").code == 2
