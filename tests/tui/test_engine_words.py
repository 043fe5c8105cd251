"""How the model stands, in the few words of the top line."""

import pytest

from paged_chat.app.service.chat_events import EngineStatus, ModelFetch
from paged_chat.engine.progress import LoadProgress
from paged_chat.tui.widgets.engine_words import engine_words


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (None, "loading smollm2-135m"),
        (LoadProgress("download", 45, 100), "downloading smollm2-135m 45%"),
        (LoadProgress("warm up", 0, None), "warming up smollm2-135m: at first a minute or two"),
        (LoadProgress("warm up", 1, 4), "warming up smollm2-135m 25%"),
    ],
)
def test_a_model_that_loads(progress, words):
    assert engine_words(EngineStatus(phase="loading", model="smollm2-135m", progress=progress)) == words


def test_a_model_that_answers_while_another_is_downloaded():
    fetch = ModelFetch(model="owner/qwen", progress=LoadProgress("download", 45, 100))
    status = EngineStatus(phase="ready", model="smollm2-135m", fetch=fetch)
    assert engine_words(status) == "smollm2-135m, downloading qwen 45%"
