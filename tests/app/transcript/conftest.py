"""A transcript over the tiny template and tokenizer."""

import pytest

from chat_path import WINDOW
from paged_chat.app.transcript.transcript import Transcript
from text_model import TextModel


@pytest.fixture
def model() -> TextModel:
    return TextModel()


@pytest.fixture
def transcript(model: TextModel) -> Transcript:
    return Transcript(model, WINDOW)
