"""Another model is looked for before the one that answers has to go."""

import shutil
import threading

import huggingface_hub
import pytest

from chat_desk import MODEL, ChatDesk, until
from fake_engine import FakeEngine
from paged_chat.app.errors import ModelInUse
from paged_chat.app.service.chat_events import ModelFetch
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.service.own_engine import find_own_model
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.errors import ModelFileInvalid, ModelNotFound
from patience import PATIENCE_S


@pytest.fixture
def desk(tmp_path):
    """Its models are looked for as those of a real engine are; the one that answers is loaded."""
    desk = ChatDesk(tmp_path / "chats.db", FakeEngine())
    desk.service.close()
    desk.service = ChatService(desk.store, desk.fake.open, config=EngineConfig(model=MODEL), find_model=find_own_model)
    until(lambda: desk.service.engine_status.phase == "ready")
    desk.fake.models.clear()
    yield desk
    desk.close()


@pytest.fixture
def broken_file(tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0 and no more")
    return path


def assert_goes_on(desk):
    assert desk.fake.models == [], "nothing else was loaded"
    [reply] = desk.ask(desk.service.create_chat(), "Still there?", "Yes")
    assert (reply.text, reply.model, desk.service.engine_status.model) == ("Yes", MODEL, MODEL)


def test_a_mistyped_name_is_refused_and_the_old_model_goes_on(desk):
    with pytest.raises(ModelNotFound, match=r"there is no model 'smolm2'.*the catalogue"):
        desk.service.switch_model("smolm2")
    assert_goes_on(desk)


def test_a_file_that_is_not_there_is_refused(desk, tmp_path):
    with pytest.raises(ModelNotFound, match="there is no model"):
        desk.service.switch_model(str(tmp_path / "absent.gguf"))
    assert_goes_on(desk)


def test_a_broken_file_is_refused_even_by_force(desk, broken_file):
    desk.fake.enqueue("A long reply")
    desk.fake.hold()
    chat = desk.service.create_chat()
    [draft] = desk.service.send(chat.id, "Go").replies
    desk.let(chat, 6)
    with pytest.raises(ModelFileInvalid, match=r"broken\.gguf"):
        desk.service.switch_model(str(broken_file), force=True)
    desk.fake.go()
    desk.finish(chat)
    assert (desk.stored(draft).text, desk.stored(draft).status) == ("A long reply", "done")
    assert_goes_on(desk)


def test_a_folder_whose_weights_were_cut_short_is_refused(desk, tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelFileInvalid, match=r"model\.safetensors"):
        desk.service.switch_model(str(folder))
    assert_goes_on(desk)


def test_a_sound_one_is_loaded(desk, tiny_model):
    folder = str(tiny_model("llama"))
    desk.service.switch_model(folder)
    until(lambda: desk.service.engine_status.phase == "ready")
    assert [model.model_name for model in desk.fake.models] == [folder]


class Hub:
    """A hub that answers when it may: with a repository, or that it can't be reached."""

    def __init__(self, cache, repository):
        self.cache = cache
        self.repository = repository  # None for a hub out of reach
        self.may_answer = threading.Event()

    def snapshot_download(self, hub_id, **_):
        assert self.may_answer.wait(PATIENCE_S)
        if self.repository is None:
            raise huggingface_hub.errors.LocalEntryNotFoundError("no route to host")
        folder = self.cache / f"models--{hub_id.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text("a" * 40)
        return str(shutil.copytree(self.repository, folder / "snapshots" / ("a" * 40)))


@pytest.fixture
def hub(tmp_path, tiny_model, monkeypatch):
    hub = Hub(tmp_path / "hub", tiny_model("llama"))
    monkeypatch.setenv("HF_HUB_CACHE", str(hub.cache))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    yield hub
    hub.may_answer.set()


def fetch_of(desk):
    return desk.service.engine_status.fetch


def test_while_a_model_is_downloaded_the_old_one_answers(desk, hub):
    desk.service.switch_model("owner/tiny")
    assert fetch_of(desk).model == "owner/tiny"
    assert_goes_on(desk)
    hub.may_answer.set()
    until(lambda: desk.service.engine_status.model == "owner/tiny")
    until(lambda: desk.service.engine_status.phase == "ready" and fetch_of(desk) is None)
    assert [model.model_name for model in desk.fake.models] == ["owner/tiny"]


def test_a_hub_out_of_reach_leaves_the_old_model_and_says_why(desk, hub):
    hub.repository = None
    hub.may_answer.set()
    desk.service.switch_model("owner/tiny")
    until(lambda: fetch_of(desk).error is not None)
    assert "owner/tiny couldn't be fetched from the Hugging Face hub: no route to host" in fetch_of(desk).error
    assert_goes_on(desk)


def test_what_came_broken_leaves_the_old_model(desk, hub, tiny_model, tmp_path):
    hub.repository = shutil.copytree(tiny_model("llama"), tmp_path / "broken")
    (hub.repository / "config.json").write_text("{")
    hub.may_answer.set()
    desk.service.switch_model("owner/tiny")
    until(lambda: fetch_of(desk).error is not None)
    assert "config.json" in fetch_of(desk).error
    assert_goes_on(desk)


def test_a_reply_that_began_meanwhile_is_not_ended_by_what_was_downloaded(desk, hub):
    desk.service.switch_model("owner/tiny")
    desk.fake.enqueue("A long reply")
    desk.fake.hold()
    chat = desk.service.create_chat()
    desk.service.send(chat.id, "Go")
    desk.let(chat, 6)
    hub.may_answer.set()
    words = "1 reply is being written: another model would end that"
    until(lambda: fetch_of(desk) == ModelFetch(model="owner/tiny", error=words))
    with pytest.raises(ModelInUse):
        desk.service.switch_model("owner/tiny")
    desk.fake.go()
    desk.finish(chat)
    assert_goes_on(desk)


def test_of_two_choices_the_later_one_counts(desk, hub, tiny_model):
    desk.service.switch_model("owner/tiny")
    folder = str(tiny_model("llama"))
    desk.service.switch_model(folder)
    assert fetch_of(desk) is None
    hub.may_answer.set()
    until(lambda: desk.service.engine_status.phase == "ready")
    until(lambda: not any(thread.name == "paged-chat model download" for thread in threading.enumerate()))
    assert (desk.service.engine_status.model, fetch_of(desk)) == (folder, None)
    assert [model.model_name for model in desk.fake.models] == [folder]
