"""An engine in another process is used as one of our own: the same answers, the same errors, the same ends."""

import threading
import time
from dataclasses import replace

import pytest

from chat_desk import until
from engine_server import MODEL
from paged_chat.app.cache_view.block_note import read_block
from paged_chat.app.cache_view.block_view import read_pool
from paged_chat.app.engine_query import Query, QueryKind
from paged_chat.app.errors import EngineUnavailable
from paged_chat.app.service.prompts import prompt_cost
from paged_chat.app.service.served_engine import ModelFigures, model_figures
from paged_chat.engine import ChatMessage, SamplingParams
from paged_chat.engine.errors import EngineClosed, InvalidParameter, ModelNotFound, PagedChatError, PromptTooLong
from patience import PATIENCE_S


class Heard:
    """What a request's listener was told."""

    def __init__(self, num_samples=1):
        self.deltas = []
        self.is_whole = threading.Event()
        self._num_open = num_samples

    def __call__(self, delta):
        self.deltas.append(delta)
        self._num_open -= delta.finish_reason is not None
        if not self._num_open:
            self.is_whole.set()

    def wait(self):
        assert self.is_whole.wait(PATIENCE_S)
        return self.deltas

    def text(self, sample=0):
        return "".join(delta.text for delta in self.deltas if delta.sample == sample)


def own(fake):
    """The engine in the server's process, which the other one asks from afar."""
    return fake._opened[-1]


def test_deltas_are_those_that_the_engine_gives(fake, remote):
    prompt = remote.engine.encode("a question")
    own_heard, heard = Heard(2), Heard(2)
    for engine, listener in ((own(fake), own_heard), (remote, heard)):
        fake.enqueue("hello there", "good day")
        engine.submit(prompt, SamplingParams(n=2, logprobs=1), listener).result(PATIENCE_S)
        listener.wait()
    assert (heard.text(0), heard.text(1)) == ("hello there", "good day")

    def shown(delta):
        return delta.sample, delta.token_ids, delta.text, delta.finish_reason, delta.logprobs, delta.error

    for sample in range(2):
        mine, theirs = ([shown(d) for d in each.deltas if d.sample == sample] for each in (heard, own_heard))
        assert mine == theirs
    ends = [delta.stats for delta in heard.deltas if delta.finish_reason]
    assert [(end.num_prompt_tokens, end.num_cached_tokens) for end in ends] == [(10, 9), (10, 9)]


def test_queries_have_the_answers_that_the_engine_gives(fake, remote):
    prompt = tuple(remote.engine.encode("the quick brown fox jumps over"))
    heard = Heard()
    remote.submit(prompt, SamplingParams(), heard).result(PATIENCE_S)
    heard.wait()
    mine, theirs = (asked.call(read_pool.ask(0)).result(PATIENCE_S) for asked in (remote, own(fake)))
    assert mine.read_at <= theirs.read_at  # one after the other
    assert replace(mine, read_at=theirs.read_at) == theirs
    for query in (
        read_block.ask(1),
        read_block.ask(1, salt="somebody else"),
        prompt_cost.ask(prompt, ""),
        model_figures.ask(),
    ):
        mine, theirs = remote.call(query).result(PATIENCE_S), own(fake).call(query).result(PATIENCE_S)
        assert mine == theirs, query.kind.name
        assert type(mine) is type(theirs)
    assert remote.call(prompt_cost.ask(prompt, "")).result(PATIENCE_S).prefix.num_cached_tokens == len(prompt) - 1
    assert remote.call(model_figures.ask()).result(PATIENCE_S) == ModelFigures(
        model_name=MODEL, max_model_len=4096, load_s=0.25
    )


def test_text_functions_give_what_the_models_give(fake, remote):
    chat = [ChatMessage("user", "hello"), ChatMessage("assistant", "he", (5, 6, 2)), ChatMessage("user", "and </s>?")]
    model = own(fake).engine
    assert remote.engine.encode_chat(chat) == model.encode_chat(chat)
    assert remote.engine.encode("hello </s>") == model.encode("hello </s>")
    ids = model.encode("日本 hello")
    assert remote.engine.decode(ids) == "日本 hello"
    assert remote.engine.resumable(ids[:2]) == model.resumable(ids[:2]) == []


def test_text_functions_do_not_wait_for_a_step(fake, remote):
    assert remote.engine.encode("hello")
    fake.stall()
    heard = Heard()
    remote.submit([5, 6], SamplingParams(), heard)
    start = time.monotonic()
    assert remote.engine.decode([5, 6])
    assert time.monotonic() - start < PATIENCE_S / 4  # the step ends after four times that, if nobody lets it go
    fake.go()
    heard.wait()


def test_a_listener_may_ask_for_text_functions(fake, remote):
    said = []
    heard = Heard()

    def listen(delta):
        said.append(remote.engine.decode(delta.token_ids))
        heard(delta)

    fake.enqueue("hello")
    remote.submit([5, 6], SamplingParams(), listen).result(PATIENCE_S)
    heard.wait()
    assert "".join(said) == "hello"


def test_what_the_engine_refuses_is_refused_with_the_same_error(remote):
    with pytest.raises(PromptTooLong, match="the prompt has 5,000 tokens, and the model's window holds 4,096"):
        remote.submit([5] * 5000, SamplingParams(), Heard()).result(PATIENCE_S)
    with pytest.raises(InvalidParameter, match="n is 70, but at most 64 replies run at once"):
        remote.submit([5], SamplingParams(n=70), Heard()).result(PATIENCE_S)
    with pytest.raises(InvalidParameter, match="block ids go from 1 to 511, not 9999"):
        remote.call(read_block.ask(9999)).result(PATIENCE_S)
    assert remote.engine.encode("hello"), "and all goes on"


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the argument that is meant to be wrong
def test_a_query_that_the_other_program_does_not_know_is_refused(remote):
    def of_tomorrow(engine: object, depth: int) -> int:
        return depth

    with pytest.raises(PagedChatError, match="knows no query of_tomorrow: both programs must be of one version"):
        remote.call(Query(QueryKind(of_tomorrow), {"depth": 3})).result(PATIENCE_S)
    with pytest.raises(PagedChatError, match="Input should be a valid integer"):
        remote.call(read_pool.ask("seven")).result(PATIENCE_S)


def test_stopping_ends_with_the_step_and_frees_the_blocks(fake, remote):
    fake.hold()
    heard = Heard()
    request_id = remote.submit([5, 6, 7], SamplingParams(max_tokens=None), heard).result(PATIENCE_S)
    fake.let(2)
    until(lambda: len(heard.deltas) == 2)
    assert remote.abort(request_id).result(PATIENCE_S) is True
    assert [delta.finish_reason for delta in heard.wait()] == [None, None, "abort"]
    assert remote.abort(request_id).result(PATIENCE_S) is False
    assert remote.call(read_pool.ask(0)).result(PATIENCE_S).snapshot.num_referenced == 0


def test_what_a_program_leaves_running_is_aborted_when_it_goes(fake, server):
    fake.hold()
    remote, heard = server.connect(), Heard()
    remote.submit([5, 6, 7], SamplingParams(max_tokens=None), heard).result(PATIENCE_S)
    fake.let(1)
    until(lambda: heard.deltas)
    remote.close()
    assert heard.wait()[-1].finish_reason == "abort"
    until(lambda: not own(fake).call(lambda engine: engine.has_unfinished).result(PATIENCE_S))
    with pytest.raises(EngineClosed, match="the engine is closed"):
        remote.call(model_figures.ask()).result(PATIENCE_S)
    assert remote.ended.result(PATIENCE_S) is None
    remote.close()


def test_what_is_asked_while_the_model_loads_waits_for_it(fake):
    from engine_server import serve_engine
    from paged_chat.app.api.remote_engine import RemoteEngine

    fake.may_load.clear()
    server, progress = serve_engine(fake.open), []
    remote = RemoteEngine(server.record, progress.append)
    figures = remote.call(model_figures.ask())
    until(lambda: progress)
    assert (progress[0].stage, progress[0].done, progress[0].total) == ("load", 1, 4)
    assert not figures.done()
    fake.may_load.set()
    assert figures.result(PATIENCE_S).max_model_len == 4096
    remote.close()
    server.close()


def test_a_model_that_does_not_load_says_why(fake):
    from engine_server import serve_engine

    fake.load_error = ModelNotFound("there is no model 'x': take another")
    server = serve_engine(fake.open)
    remote = server.connect()
    with pytest.raises(EngineClosed, match="there is no model 'x': take another"):
        remote.call(model_figures.ask()).result(PATIENCE_S)
    remote.close()
    server.close()


# The other program goes


def test_a_server_that_goes_in_mid_reply_ends_the_reply_and_says_so(fake, server, remote):
    fake.hold()
    heard = Heard()
    remote.submit([5, 6, 7], SamplingParams(max_tokens=None), heard).result(PATIENCE_S)
    fake.let(3)
    until(lambda: len(heard.deltas) == 3)
    waiting = remote.call(read_pool.ask(0))
    waiting.result(PATIENCE_S)
    server.close()
    last = heard.wait()[-1]
    assert last.finish_reason == "error"
    assert f"the engine at {server.address} doesn't answer any more" in last.error
    assert "load a model here" in last.error
    with pytest.raises(EngineClosed, match="doesn't answer any more"):
        remote.ended.result(PATIENCE_S)
    with pytest.raises(EngineClosed, match="doesn't answer any more"):
        remote.submit([5], SamplingParams(), Heard()).result(PATIENCE_S)
    with pytest.raises(EngineUnavailable, match="no engine answers at"):
        server.connect()


def test_a_server_that_takes_another_model_says_so(fake, server, remote):
    from paged_chat.engine.config import EngineConfig

    assert remote.engine.encode("hello")
    server.host.switch(EngineConfig(model="other-3b"))
    with pytest.raises(EngineClosed, match="its program has changed to the model other-3b; load a model here"):
        remote.ended.result(PATIENCE_S)


def test_an_engine_that_breaks_ends_everywhere(fake, server, remote):
    heard = Heard()
    fake.crash("block 7 was freed twice")
    remote.submit([5, 6, 7], SamplingParams(), heard)
    assert "block 7 was freed twice" in heard.wait()[-1].error
    with pytest.raises(EngineClosed, match="block 7 was freed twice"):
        remote.ended.result(PATIENCE_S)


def test_two_programs_share_one_cache(fake, server, remote):
    prompt = remote.engine.encode("a question that both have, word for word")
    heard = Heard()
    remote.submit(prompt, SamplingParams(), heard).result(PATIENCE_S)
    heard.wait()
    other, of_other = server.connect(), Heard()
    other.submit(prompt, SamplingParams(), of_other).result(PATIENCE_S)
    assert of_other.wait()[-1].stats.num_cached_tokens == len(prompt) - 1
    other.close()
