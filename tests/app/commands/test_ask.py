"""`paged-chat ask`: what is printed, in which shape, and what is refused."""

import io
import json
import os
import signal

import pytest


def test_one_reply_is_the_only_thing_on_stdout(run_cli, scripted):
    scripted.enqueue("The capital is Paris.")
    ended = run_cli("ask", "What is the capital of France?")
    assert (ended.code, ended.out, ended.err) == (0, "The capital is Paris.\n", "")


def test_each_prompt_is_a_chat_of_its_own(run_cli, scripted):
    scripted.enqueue("Paris.")
    scripted.enqueue("Rome.")
    ended = run_cli("ask", "--system", "Be brief.", "Capital of France?", "And of Italy?")
    assert ended.out == "> Capital of France?\nParis.\n\n> And of Italy?\nRome.\n"
    assert scripted.chats == [
        [("system", "Be brief."), ("user", "Capital of France?")],
        [("system", "Be brief."), ("user", "And of Italy?")],
    ]


def test_several_replies_are_numbered_and_whole(run_cli, scripted):
    scripted.enqueue("one is long enough", "two", "three words here")
    assert run_cli("ask", "-n", "3", "Say").out == "[1/3] one is long enough\n\n[2/3] two\n\n[3/3] three words here\n"


def test_the_options_reach_the_engine(run_cli, scripted):
    scripted.enqueue("a", "b")
    options = "-n 2 --seed 7 --temperature 0.8 --top-p 0.9 --top-k 40 --min-p 0.05 --repetition-penalty 1.1"
    more = "--presence-penalty 0.5 --frequency-penalty 0.25 --max-tokens 9 --stop END --stop FIN"
    engine = "--model some/model --device cpu --dtype float32 --weights dense --kernels reference --num-blocks 64"
    assert run_cli("ask", "hello", *options.split(), *more.split(), *engine.split()).code == 0
    [(_, params)] = scripted.submitted
    assert (params.n, params.seed, params.temperature, params.top_p, params.top_k) == (2, 7, 0.8, 0.9, 40)
    assert (params.min_p, params.repetition_penalty, params.presence_penalty) == (0.05, 1.1, 0.5)
    assert (params.frequency_penalty, params.max_tokens, params.stop) == (0.25, 9, ("END", "FIN"))
    [config] = scripted.configs
    assert (config.model, config.device, config.dtype) == ("some/model", "cpu", "float32")
    assert (config.weights, config.kernels, config.num_blocks) == ("dense", "reference", 64)


def test_as_many_replies_as_are_asked_for_run_together(run_cli, scripted):
    assert run_cli("ask", "-n", "256", "--max-tokens", "1", "hello").code == 0
    assert run_cli("ask", "-n", "2", "--max-tokens", "1", "hello").code == 0
    assert [config.max_num_seqs for config in scripted.configs] == [256, 64]


def test_the_options_of_beam_search_reach_the_engine(run_cli, scripted):
    scripted.enqueue("a", "b")
    options = "--beam-width 3 -n 2 --length-penalty 0.5 --early-stopping never"
    assert run_cli("ask", "hello", *options.split()).code == 0
    [(_, params)] = scripted.submitted
    assert (params.beam_width, params.n, params.length_penalty, params.early_stopping) == (3, 2, 0.5, "never")


def test_logprobs_are_one_more_key_of_each_sample(run_cli, scripted):
    scripted.enqueue("a b", "c")
    [line] = run_cli("ask", "-n", "2", "--json", "--logprobs", "2", "hello").out.splitlines()
    first, second = json.loads(line)["samples"]
    assert first["token_ids"] == [100, 101]
    assert first["logprobs"] == [
        {"token_id": 100, "text": "w100", "logprob": -0.5, "top": [[100, "w100", -0.5], [101, "w101", -1.5]]},
        {"token_id": 101, "text": "w101", "logprob": -0.5, "top": [[101, "w101", -0.5], [102, "w102", -1.5]]},
    ]
    assert [one["token_id"] for one in second["logprobs"]] == [100]


def test_logprobs_are_there_only_if_they_are_wanted_and_have_a_place(run_cli, scripted):
    scripted.enqueue("a")
    assert "logprobs" not in json.loads(run_cli("ask", "--json", "hello").out)["samples"][0]
    refused = run_cli("ask", "--logprobs", "2", "hello")
    assert (refused.code, "--logprobs needs --json" in refused.err) == (2, True)


@pytest.mark.parametrize(("choice", "value"), [("true", True), ("false", False), ("never", "never")])
def test_early_stopping_has_three_values(run_cli, scripted, choice, value):
    run_cli("ask", "hello", "--beam-width", "2", "--early-stopping", choice)
    assert scripted.submitted[0][1].early_stopping == value


def test_a_search_is_seen_on_a_terminal_and_gives_way_to_its_replies(run_cli, scripted, monkeypatch):
    scripted.enqueue("one two three", "four")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    ended = run_cli("ask", "hello", "--beam-width", "2", "-n", "2")
    assert ended.out == "[1/2] one two three\n\n[2/2] four\n"
    assert "2 beams · 1 token · so far" in ended.err


def test_the_defaults_are_greedy_and_512_tokens(run_cli, scripted):
    scripted.enqueue("x")
    run_cli("ask", "hello")
    [(_, params)] = scripted.submitted
    assert (params.temperature, params.max_tokens, params.n, params.seed) == (0.0, 512, 1, None)


def test_json_is_one_line_for_each_prompt(run_cli, scripted):
    scripted.enqueue("Pâris 👋", "Lutetia")
    scripted.enqueue("Rome", "Roma")
    ended = run_cli("ask", "--json", "-n", "2", "France?", "Italy?")
    first, second = map(json.loads, ended.out.splitlines())
    assert first["model"] == "scripted"
    assert first["samples"] == [
        {"index": 0, "text": "Pâris 👋", "token_ids": [100, 101], "finish_reason": "stop"},
        {"index": 1, "text": "Lutetia", "token_ids": [100], "finish_reason": "stop"},
    ]
    assert first["usage"] == {"prompt_tokens": len("user:France?;"), "cached_tokens": 0, "completion_tokens": 3}
    assert set(first["timing"]) == {"load_s", "ttft_ms", "decode_tokens_per_s"}
    assert first["speculation"] == {"drafted_tokens": 0, "accepted_tokens": 0}
    assert first["timing"]["load_s"] == 0.25
    assert second["usage"]["cached_tokens"] == len("user:")
    assert first["miss"] is second["miss"] is None  # this engine keeps nothing
    assert ended.err == ""


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("--temperature -1", "'--temperature' / '-t': must be at least 0 and at most 100, not '-1'"),
        ("--temperature nan", "'--temperature' / '-t': must be at least 0 and at most 100, not 'nan'"),
        ("-t hot", "'--temperature' / '-t': must be at least 0 and at most 100, not 'hot'"),
        ("--top-p 0", "'--top-p': must be above 0 and at most 1, not '0'"),
        ("--top-k -1", "'--top-k': must be a whole number from 0 to 2147483647, not '-1'"),
        ("--min-p 1.5", "'--min-p': must be at least 0 and at most 1, not '1.5'"),
        ("--repetition-penalty 0", "'--repetition-penalty': must be above 0 and at most 100, not '0'"),
        ("--presence-penalty 101", "'--presence-penalty': must be at least -100 and at most 100, not '101'"),
        ("--frequency-penalty inf", "'--frequency-penalty': must be at least -100 and at most 100, not 'inf'"),
        ("--max-tokens 0", "'--max-tokens': must be a whole number from 1 to 2147483647, not '0'"),
        ("-n 0", "'-n': must be a whole number from 1 to 256, not '0'"),
        ("-n 2.5", "'-n': must be a whole number from 1 to 256, not '2.5'"),
        ("--seed -1", "'--seed': must be a whole number from 0 to 9223372036854775807, not '-1'"),
        (f"--seed {'9' * 5000}", f"not '{'9' * 30}' and 4,970 characters more"),
        ("--logprobs 65", "'--logprobs': must be a whole number from 0 to 64, not '65'"),
        ("--device tpu", "--device must be auto, cpu, cuda or cuda:N, not 'tpu'"),
        ("--dtype int3", "--dtype must be one of auto, float32, bfloat16, float16, not 'int3'"),
        ("--weights heavy", "--weights must be one of auto, dense"),
        ("--kernels magic", "--kernels must be one of auto, triton, cpu, reference, not 'magic'"),
        ("--num-blocks 1", "'--num-blocks': must be a whole number from 2 to 2147483647, not '1'"),
        ("--model=", "--model must be a name or a path, not ''"),
        ("--beam-width 0", "'--beam-width': must be a whole number from 1 to 64, not '0'"),
        ("--beam-width 3 -t 0.7", "--beam-width 3 looks for the likeliest replies and draws nothing: set temperature"),
        ("--beam-width 3 -n 4", "-n is 4, but a search with --beam-width 3 finds no more than 3 replies"),
        ("--length-penalty 11", "'--length-penalty': must be at least -10 and at most 10, not '11'"),
        ("--early-stopping maybe", "Invalid value for '--early-stopping'"),
        ("--stop=", "--stop must hold strings that aren't empty"),
    ],
)
def test_a_value_out_of_range_names_the_option_and_the_range(run_cli, scripted, options, fault):
    ended = run_cli("ask", "hello", *options.split())
    assert ended.code == 2
    assert fault in " ".join(ended.err.split())
    assert scripted.configs == [], "the engine was built for options that are refused"


def test_an_empty_prompt_is_refused(run_cli, scripted):
    ended = run_cli("ask", "hello", " ")
    assert (ended.code, scripted.configs) == (2, [])
    assert "PROMPT must not be empty" in ended.err


def test_a_dash_reads_one_prompt_from_standard_input(run_cli, scripted, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines\n"))
    scripted.enqueue("read")
    assert run_cli("ask", "-").code == 0
    assert scripted.chats == [[("user", "two\nlines\n")]]


def test_two_dashes_are_refused(run_cli, scripted):
    assert run_cli("ask", "-", "-").code == 2


def test_without_a_prompt_each_line_of_standard_input_is_one(run_cli, scripted, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("first\n\nsecond\n"))
    scripted.enqueue("1")
    scripted.enqueue("2")
    assert run_cli("ask").out == "1\n2\n"
    assert scripted.chats == [[("user", "first")], [("user", "second")]]


def interrupt_at(step, number=signal.SIGINT):
    """A before_step that presses Ctrl-C, or asks the process to end, before the given step."""
    steps = iter(range(1, 1000))

    def before_step():
        if next(steps) == step:
            os.kill(os.getpid(), number)

    return before_step


def test_ctrl_c_keeps_what_has_come_and_exits_130(run_cli, scripted):
    scripted.enqueue("one two three four five six")
    scripted.before_step = interrupt_at(3)
    ended = run_cli("ask", "Count", "never asked")
    assert (ended.code, ended.out) == (130, "> Count\none two three\n")
    assert scripted.aborted == ["request-1"]
    assert len(scripted.chats) == 1


@pytest.mark.parametrize("is_terminal", [False, True])
def test_sigterm_keeps_what_has_come_and_exits_143_from_a_talk_too(run_cli, scripted, monkeypatch, is_terminal):
    monkeypatch.setattr("sys.stdin", io.StringIO("Count\nnever asked\n"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: is_terminal)
    monkeypatch.setattr("builtins.input", lambda _: "Count")
    scripted.enqueue("one two three four five six")
    scripted.before_step = interrupt_at(3, signal.SIGTERM)
    ended = run_cli("ask")
    assert (ended.code, ended.out) == (143, "one two three\n")
    assert scripted.aborted == ["request-1"]
    assert len(scripted.chats) == 1


def test_ctrl_c_with_json_still_prints_the_line(run_cli, scripted):
    scripted.enqueue("one two three four")
    scripted.before_step = interrupt_at(2)
    ended = run_cli("ask", "--json", "Count")
    assert ended.code == 130
    [sample] = json.loads(ended.out)["samples"]
    assert (sample["text"], sample["finish_reason"]) == ("one two", "abort")


def test_ctrl_c_before_the_first_token_exits_130_without_a_traceback(run_cli, scripted):
    def interrupted():
        raise KeyboardInterrupt

    scripted.before_step = interrupted
    scripted.enqueue("never said")
    ended = run_cli("ask", "hello")
    assert ended.code == 130
    assert "Traceback" not in ended.err


def test_a_failed_step_says_so_and_exits_1(run_cli, scripted):
    scripted.enqueue_failure("half a", error="the step failed: out of memory")
    ended = run_cli("ask", "hello")
    assert ended.code == 1
    assert ended.err == "Error: the step failed: out of memory\n"


def test_a_terminal_gets_the_figures_on_stderr(run_cli, scripted, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    scripted.enqueue("Paris it is.")
    ended = run_cli("ask", "hello")
    assert ended.out == "Paris it is.\n"
    assert "11 prompt tokens, 0 cached" in ended.err
    assert "3 tokens" in ended.err


def test_the_default_model_knows_paris_and_reuses_the_common_system_prompt(run_cli, default_model):
    ended = run_cli("ask", "--json", "--max-tokens", "16", "What is the capital of France?", "And of Italy?")
    france, italy = map(json.loads, ended.out.splitlines())
    assert france["model"] == italy["model"] == default_model
    assert "Paris" in france["samples"][0]["text"]
    assert france["samples"][0]["finish_reason"] == "stop"
    # The template puts the same system message before both: <|im_start|>system ... <|im_end|> and <|im_start|>user
    # with their line breaks are 24 tokens.
    assert (france["usage"]["cached_tokens"], italy["usage"]["cached_tokens"]) == (0, 24)
    # Each says why it wasn't more.
    assert (france["miss"]["cause"], france["miss"]["is_fault"], france["miss"]["token_index"]) == (
        "first message",
        False,
        0,
    )
    assert italy["miss"]["words"] == "24 of 34 tokens were reused. From token 25 on: the prompt is new"
    parted = {name: italy["miss"][name] for name in ("token_index", "block_index", "cached_text", "num_common_tokens")}
    assert parted == {"token_index": 24, "block_index": 1, "cached_text": "What", "num_common_tokens": 8}
    assert italy["miss"]["text"].startswith("And of Italy?")
