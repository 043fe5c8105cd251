"""What is run before the first request: short prompts' paths while the model loads, long ones' when there is time."""

import math
import threading

import pytest

import tiny_gguf
from paged_chat.engine import AsyncEngine, Engine, EngineConfig, SamplingParams, warm_up
from paged_chat.engine.errors import ModelFileInvalid
from paged_chat.engine.model import compute, loader, path_choice
from paged_chat.engine.model.model_runner import ModelRunner
from paged_chat.engine.progress import LoadProgress
from paged_chat.engine.warm_up import WarmUp
from patience import PATIENCE_S


class Recorder:
    """Stands for a runner; a row count in `failing` raises."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.failing: set[int] = set()

    def warm_up(self, num_rows: int) -> None:
        if num_rows in self.failing:
            raise RuntimeError("no")
        self.rows.append(num_rows)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def reports() -> list[LoadProgress]:
    return []


@pytest.fixture
def kernels_are_kept(monkeypatch):
    monkeypatch.setattr(warm_up, "COMPILING_S", math.inf)


@pytest.fixture
def kernels_are_compiled(monkeypatch):
    monkeypatch.setattr(warm_up, "COMPILING_S", -1.0)


def test_the_start_leaves_long_prompts_for_later(recorder, reports, kernels_are_kept):
    paths = WarmUp(recorder, (1, 193, 12))
    paths.start(reports.append)
    assert recorder.rows == [1, 12]
    assert [(report.stage, report.done, report.total) for report in reports] == [
        ("warm up", 0, 2),
        ("warm up", 1, 2),
        ("warm up", 2, 2),
    ]
    paths.finish()
    assert recorder.rows == [1, 12, 193]


def test_each_path_is_run_once(recorder, reports, kernels_are_kept):
    paths = WarmUp(recorder, (1, 128))
    paths.start(reports.append)
    paths.finish()
    paths.finish()
    assert recorder.rows == [1, 128]


def test_where_one_was_compiled_all_are_and_the_bar_knows(recorder, reports, kernels_are_compiled):
    paths = WarmUp(recorder, (1, 12, 193))
    paths.start(reports.append)
    assert recorder.rows == [1, 12, 193]
    assert [(report.done, report.total) for report in reports] == [(0, 2), (1, 3), (2, 3), (3, 3)]


def test_a_path_that_fails_is_not_tried_again(recorder, reports, kernels_are_kept):
    paths = WarmUp(recorder, (1, 128, 193))
    paths.start(reports.append)
    recorder.failing = {128}
    with pytest.raises(RuntimeError):
        paths.finish()
    paths.finish()
    assert recorder.rows == [1, 193]


# With engines


@pytest.fixture
def warmed(monkeypatch) -> list[int]:
    """The row counts that were run before anybody asked."""
    rows = []
    original = ModelRunner.warm_up

    def record(self, num_rows):
        original(self, num_rows)
        rows.append(num_rows)

    monkeypatch.setattr(ModelRunner, "warm_up", record)
    return rows


def test_an_engine_starts_with_what_short_prompts_need_and_can_be_asked_for_more(make_engine, warmed, kernels_are_kept):
    engine = make_engine()
    assert warmed == [1]
    engine.warm_up()
    assert warmed == [1, 128]
    engine.close()
    engine.warm_up()
    assert warmed == [1, 128]


def test_every_compiled_path_of_packed_weights_is_run(tmp_path, make_engine, warmed, kernels_are_compiled, monkeypatch):
    """With dense weights for long prompts, where there is no other way to be faster than packed ones."""
    monkeypatch.setattr(loader, "fits_tiled", lambda config, dtype: False)
    monkeypatch.setattr(loader, "can_round_prompts", lambda dtype: False)
    monkeypatch.setattr(compute, "cpu_multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(path_choice, "measure_crossover", lambda *_: 128)
    model = str(tiny_gguf.build("llama", tmp_path / "tiny.gguf", "Q4_1"))
    make_engine(model=model, dtype="auto", weights="auto")
    assert warmed == [1, 128]


def test_nothing_is_left_in_the_pool(make_engine, kernels_are_compiled):
    engine = make_engine()
    snapshot = engine.snapshot()
    assert (snapshot.num_cached, snapshot.num_referenced, snapshot.misses) == (0, 0, 0)


def test_an_async_engine_does_the_rest_once_nobody_asks(tiny_model, warmed, kernels_are_kept, monkeypatch):
    done = threading.Event()
    finish = WarmUp.finish
    monkeypatch.setattr(WarmUp, "finish", lambda self: (finish(self), done.set()))
    engine = AsyncEngine(config_of(tiny_model))
    assert done.wait(PATIENCE_S)
    engine.close()
    assert warmed == [1, 128]


def test_an_async_engine_that_cannot_still_serves(tiny_model, kernels_are_kept, monkeypatch, caplog):
    failed = threading.Event()

    def fail(self):
        failed.set()
        raise RuntimeError("no compiler")

    monkeypatch.setattr(WarmUp, "finish", fail)
    engine = AsyncEngine(config_of(tiny_model))
    assert failed.wait(PATIENCE_S)
    deltas, ended = [], threading.Event()

    def listen(delta):
        deltas.append(delta)
        if delta.finish_reason is not None:
            ended.set()

    engine.submit([1, 2, 3], SamplingParams(max_tokens=3, ignore_eos=True), listen)
    assert ended.wait(PATIENCE_S)
    engine.close()
    assert [token for delta in deltas for token in delta.token_ids] != []
    assert deltas[-1].finish_reason == "length"
    assert "no compiler" in caplog.text


def config_of(tiny_model) -> EngineConfig:
    return EngineConfig(
        model=str(tiny_model("llama")), device="cpu", dtype="float32", weights="dense", kernels="reference"
    )


def test_a_broken_tokenizer_which_is_built_meanwhile_is_an_error_of_the_load(tiny_model, tmp_path):
    import shutil

    folder = shutil.copytree(tiny_model("llama"), tmp_path / "broken")
    (folder / "tokenizer.json").write_text('{"model": {"type": "Perceptron"}}')
    with pytest.raises(ModelFileInvalid, match=r"broken/tokenizer\.json is not a tokenizer that can be read"):
        Engine(EngineConfig(model=str(folder), device="cpu", dtype="float32", kernels="reference"))


def test_ctrl_c_while_kernels_load_ends_the_load_and_its_threads(tiny_model, monkeypatch):
    def interrupt(self, num_rows):
        raise KeyboardInterrupt

    monkeypatch.setattr(ModelRunner, "warm_up", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Engine(config_of(tiny_model))
    assert not [thread for thread in threading.enumerate() if "tokenizer" in thread.name]
