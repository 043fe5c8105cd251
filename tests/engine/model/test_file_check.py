"""Model files that aren't sound: what loading says of them, and what to do."""

import pytest

from paged_chat.engine import Engine, EngineConfig
from paged_chat.engine.errors import ModelFileInvalid
from paged_chat.engine.model.file_check import remedy_of_broken_file


def test_loading_says_what_is_wrong_with_a_file_and_what_to_do(tmp_path):
    empty = tmp_path / "empty.gguf"
    empty.touch()
    with pytest.raises(ModelFileInvalid) as refused:
        Engine(EngineConfig(model=str(empty), device="cpu"))
    assert str(refused.value) == (
        f"{empty} isn't a sound GGUF file: it is empty; fetch the file again, or choose another model with --model"
    )


@pytest.mark.parametrize("name", ["smollm2-135m", "Qwen/Qwen3-0.6B"])
def test_what_was_fetched_is_fetched_anew(name):
    remedy = f"`paged-chat models rm {name}`, then `paged-chat models pull {name}` fetch it anew"
    assert remedy_of_broken_file(name) == remedy
