"""How replies of a new chat are drawn: the person's wish, else what suits the model, else generally."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fake_engine import FakeEngine
from paged_chat.app.imported_chat import ImportedChat
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.service.default_sampling import GENERAL_SAMPLING, DefaultSampling
from paged_chat.app.store.store import Store
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.request import SamplingParams


@pytest.fixture
def folder(tmp_path):
    """A model whose makers recommend something."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6, "top_k": 20}')
    return str(tmp_path)


@pytest.fixture
def open_service(tmp_path):
    fake = FakeEngine()
    opened = []

    def open_service(model, **options):
        store = Store(tmp_path / "chats.db")
        service = ChatService(store, fake.open, config=EngineConfig(model=model), **options)
        opened[:0] = [service, store]
        return service

    yield open_service
    for one in opened:
        one.close()
    fake.close()


def test_a_new_chat_begins_with_what_suits_the_model(open_service, folder):
    service = open_service(folder)
    assert service.create_chat().sampling == replace(GENERAL_SAMPLING, temperature=0.6, top_k=20)
    own = SamplingParams(temperature=1.0)
    assert service.create_chat(sampling=own).sampling == own
    now = datetime.now(UTC)
    untold = ImportedChat(title="of a program that doesn't tell", created_at=now, updated_at=now)
    imported = service.import_chats([untold, replace(untold, sampling=own)])
    assert [chat.sampling for chat in imported] == [service.default_sampling, own]


def test_where_nothing_is_recommended_it_is_the_general_default(open_service):
    assert open_service("fake-1b").create_chat().sampling == GENERAL_SAMPLING


def test_who_opens_the_service_may_say_it_for_all_models(open_service, folder):
    wanted = SamplingParams(temperature=0.1)
    assert open_service(folder, default_sampling=wanted).create_chat().sampling == wanted


def test_another_model_changes_new_chats_and_no_others(open_service, folder):
    service = open_service("fake-1b")
    before = service.create_chat()
    service.switch_model(folder)
    assert service.default_sampling == replace(GENERAL_SAMPLING, temperature=0.6, top_k=20)
    assert service.chat(before.id).sampling == GENERAL_SAMPLING


def test_where_settings_come_from_is_said():
    default = DefaultSampling(replace(GENERAL_SAMPLING, temperature=0.6), "some-model", frozenset(["temperature"]))
    chosen = replace(default.sampling, n=2, seed=7)
    presets = {"twice": chosen, "other": SamplingParams()}
    recommended = "Recommended for some-model: temperature 0.6. The rest are general defaults."
    assert default.origin_words(default.sampling, presets) == recommended
    assert default.origin_words(chosen, {}) == f"Chosen for this chat: n 2, seed 7. {recommended}"
    assert default.origin_words(chosen, presets) == f"As kept under twice. {recommended}"
    assert (
        default.origin_words(replace(default.sampling, temperature=1.0), {})
        == "Chosen for this chat: temperature 1. The rest are general defaults."
    )
    assert DefaultSampling(GENERAL_SAMPLING).origin_words(GENERAL_SAMPLING, {}) == "These are the general defaults."
