"""`paged-chat bench`: replays token for token, and the result file that comparisons read."""

import json

import pytest

from paged_chat.app.bench.bench_result import BenchResult, Round, metrics
from paged_chat.app.bench.replay import WARM_UP_REPLY_TOKENS, WARM_UP_TOKENS, WorkloadTooLong, replay
from paged_chat.app.bench.workload import Branch, Step, Workload
from paged_chat.app.commands.bench import show
from paged_chat.engine import Engine, EngineConfig
from paged_chat.engine.errors import InvalidParameter

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


@pytest.mark.parametrize(
    ("warm_up_id", "what"), [(0, "step 2 of foreign"), (1000, "foreign")], ids=["in a step", "when it is warmed up"]
)
def test_what_the_model_can_not_take_is_named(open_tiny, monkeypatch, warm_up_id, what):
    monkeypatch.setattr("paged_chat.app.bench.replay.WARM_UP_FIRST_ID", warm_up_id)
    foreign = Workload("foreign", (turn("a", 5), turn("a", 999_999)))
    refused = (
        rf"^{what} doesn't suit this model: token ids must be whole numbers from 0 to 319, not \d+; give the model"
    )
    with open_tiny() as engine, pytest.raises(InvalidParameter, match=refused):
        replay(engine, foreign)


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
    for metric in ("first token, cold", "decode, several replies", "peak memory", "load"):
        assert metric in ended.out
    assert "later steps" in ended.out
    assert "rounds" not in result


def test_no_prefix_cache_reaches_the_engine(run_cli, scripted, workload_file):
    run_cli("bench", str(workload_file(STEP)), "--no-prefix-cache")
    run_cli("bench", str(workload_file(STEP)))
    assert [config.prefix_caching for config in scripted.configs] == [False, True]


@pytest.mark.parametrize("weights", ["int8", "int4", "dense"])
def test_the_form_of_the_weights_reaches_the_engine(run_cli, scripted, workload_file, weights):
    assert run_cli("bench", str(workload_file(STEP)), "--weights", weights).code == 0
    assert scripted.configs[0].weights == weights


def test_weights_of_another_kind_are_a_usage_error(run_cli, scripted, workload_file):
    ended = run_cli("bench", str(workload_file(STEP)), "--weights", "int2")
    assert (ended.code, scripted.configs) == (2, [])
    assert "--weights must be one of auto, dense, int8, int4" in ended.err


def test_rounds_each_have_a_fresh_pool_and_the_file_their_medians(run_cli, tiny_model, workload_file, tmp_path):
    out, path = tmp_path / "out.json", workload_file(STEP, SAMPLED)
    options = ("--model", str(tiny_model("llama")), "--dtype", "float32", "--num-blocks", "64", "--rounds", "3")
    ended = run_cli("bench", str(path), "--json", str(out), *options)
    assert (ended.code, [line for line in ended.err.splitlines() if line.startswith("Round")]) == (
        0,
        ["Round 1 of 3", "Round 2 of 3", "Round 3 of 3"],
    )
    assert "medians of 3 rounds" in " ".join(ended.out.split())  # the title wraps with the length of the path
    result = json.loads(out.read_text())
    assert [len(each["steps"]) for each in result["rounds"]] == [2, 2, 2]
    assert [step["cached_tokens"] for each in result["rounds"] for step in each["steps"]] == [0, 39] * 3
    assert result["load_s"] == sorted(each["load_s"] for each in result["rounds"])[1]
    for i, step in enumerate(result["steps"]):
        own = [each["steps"][i] for each in result["rounds"]]
        for figure in ("ttft_ms", "decode_tokens_per_s", "total_ms"):
            assert step[figure] == sorted(each[figure] for each in own)[1]
        assert [each["output_ids"] for each in own] == [step["output_ids"]] * 3


def test_no_rounds_are_a_usage_error(run_cli, scripted, workload_file):
    assert run_cli("bench", str(workload_file(STEP)), "--rounds", "0").code == 2


def figures(ttft_ms, rate, n=1, cached=0, ids=(1, 2)):
    return {
        "chat": "a",
        "n": n,
        "prompt_tokens": 40,
        "cached_tokens": cached,
        "ttft_ms": ttft_ms,
        "decode_tokens_per_s": rate,
        "total_ms": 2 * ttft_ms,
        "output_ids": list(ids) if n == 1 else [list(ids)] * n,
    }


@pytest.fixture
def result_file(tmp_path):
    def write(name, *steps, **fields):
        path = tmp_path / f"{name}.json"
        path.write_text(
            json.dumps({"workload": "work", "load_s": 2.0, "peak_rss_mib": 500.0, "steps": steps, **fields})
        )
        return path

    return write


def table_rows(text):
    """{first cell: the other cells} of the tables in a text."""
    rows = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in text.splitlines() if "│" in line]
    return {row[0]: row[1:] for row in rows}


def test_a_table_of_steps_fits_80_columns_with_all_its_words(result_file, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    wide = {**figures(12345.6, 140.0, n=8, cached=39), "chat": "a-chat-with-a-long-name", "blocks": 58,
            "blocks_alone": 408, "drafted_tokens": 300, "accepted_tokens": 120}  # fmt: skip
    show(BenchResult.read(result_file("wide", wide)))
    table = capsys.readouterr().out.partition("summary")[0]
    assert "…" not in table
    assert [
        word for word in ("prompt", "cached", "tokens/s", "replies", "guessed", "blocks") if word not in table
    ] == []
    assert max(map(len, table.splitlines())) <= 80
    show(BenchResult.read(result_file("plain", figures(900.0, 40.0))))
    assert "guessed" not in capsys.readouterr().out


def test_two_results_side_by_side(run_cli, scripted, result_file):
    slow = result_file("slow", figures(900.0, 40.0), figures(100.0, 50.0, cached=20), figures(50.0, 90.0, n=2))
    fast = result_file("fast", figures(300.0, 80.0), figures(50.0, 75.0, cached=39, ids=(1, 3)),
                       figures(25.0, 180.0, n=2), load_s=1.0, peak_rss_mib=None)  # fmt: skip
    ended = run_cli("bench", "--compare", str(slow), str(fast))
    assert (ended.code, scripted.configs, ended.err) == (0, [], "")
    assert table_rows(ended.out) == {
        "first token, cold": ["900.0", "300.0", "3.00", "ms"],
        "first token, later steps": ["75.0", "37.5", "2.00", "ms"],
        "decode": ["45.0", "77.5", "1.72", "tokens/s"],
        "decode, several replies": ["90.0", "180.0", "2.00", "tokens/s"],
        "all steps": ["2100.0", "750.0", "2.80", "ms"],
        "prompt tokens reused": ["16.7", "32.5", "1.95", "%"],
        "peak memory": ["500.0", "-", "-", "MiB"],
        "load": ["2.00", "1.00", "2.00", "s"],
    }
    assert "slow" in ended.out
    assert "fast" in ended.out
    assert "The replies are the same in 2 of 3 steps." in ended.out


def test_a_busy_machine_is_told_of_in_a_comparison_too(run_cli, result_file):
    quiet, busy = result_file("quiet", figures(9.0, 4.0)), result_file("busy", figures(9.0, 4.0), others_cores=0.5)
    assert "0.50 cores while busy ran" in run_cli("bench", "--compare", str(quiet), str(busy)).err


def test_results_of_different_workloads_are_not_compared(run_cli, result_file):
    one = result_file("one", figures(9.0, 4.0))
    ended = run_cli("bench", "--compare", str(one), str(result_file("other", figures(9.0, 4.0), workload="branch")))
    assert ended.code == 1
    assert "one result is of the workload work, the other of branch" in ended.err
    ended = run_cli("bench", "--compare", str(one), str(result_file("longer", *[figures(9.0, 4.0)] * 2)))
    assert ended.code == 1
    assert "the two results of work have other steps" in ended.err


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "it isn't JSON"),
        ("[]", "isn't a result of bench"),
        ('{"workload": "w", "load_s": 1}', "'steps' is missing"),
        ('{"workload": "w", "load_s": 1, "steps": [{"output_ids": [1]}]}', "'prompt_tokens' is missing"),
    ],
)
def test_a_file_that_is_no_result_is_refused_with_its_fault(run_cli, result_file, tmp_path, content, fault):
    damaged = tmp_path / "damaged.json"
    damaged.write_text(content)
    ended = run_cli("bench", "--compare", str(result_file("good", figures(9.0, 4.0))), str(damaged))
    assert ended.code == 1
    assert fault in " ".join(ended.err.split())
    assert run_cli("bench", "--compare", str(damaged), str(tmp_path / "missing.json")).code == 1


def test_a_comparison_replays_nothing(run_cli, scripted, workload_file, result_file):
    one = str(result_file("one", figures(9.0, 4.0)))
    assert run_cli("bench", str(workload_file(STEP)), "--compare", one, one).code == 2
    assert run_cli("bench", "--compare", one).code == 2
    assert scripted.submitted == []


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


def test_several_replies_say_how_many_blocks_they_shared(open_tiny):
    """800 tokens of prompt are 50 blocks; each of eight replies has 6 tokens computed, in a block of its own."""
    prompt = tuple(10 + i % 200 for i in range(800))
    together = Workload("parallel", (turn("a", *prompt, n=8, temperature=1.0, seed=3),))
    with open_tiny(num_blocks=128) as engine:
        result = Round.of(replay(engine, together), engine.load_s)
    [step] = result.steps
    assert (step.num_blocks, step.num_blocks_alone) == (50 + 8, 8 * 51)
    assert (step.as_dict()["blocks"], step.as_dict()["blocks_alone"]) == (58, 408)
    summed = BenchResult.of([result], workload="parallel", model="tiny", peak_rss_mib=None)
    [saved] = [metric for metric in metrics(summed) if metric.name == "blocks saved by sharing"]
    assert saved.value == pytest.approx(100 * 350 / 408)
