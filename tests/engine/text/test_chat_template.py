"""Chats as text."""

from typing import Any

import pytest

from chat_messages import assistant, system, user
from paged_chat.engine.errors import ChatTemplateInvalid, InvalidParameter
from paged_chat.engine.text.chat_message import ChatMessage
from paged_chat.engine.text.chat_template import ChatTemplate, fold_system
from paged_chat.engine.text.tokenizer import Tokenizer
from tiny_tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def chatml(byte_level: Tokenizer) -> ChatTemplate:
    return ChatTemplate(byte_level)


@pytest.fixture(scope="module")
def llama2(sentence_piece: Tokenizer) -> ChatTemplate:
    return ChatTemplate(sentence_piece)


# Rendering


def test_a_chat_as_text(chatml: ChatTemplate) -> None:
    chat = [system("Be kind"), user("hello"), assistant("hello there"), user("again")]
    assert chatml.render(chat) == (
        "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
        "<|im_start|>assistant\nhello there<|im_end|>\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chatml.render(chat[:2], add_generation_prompt=False).endswith("hello<|im_end|>\n")


def test_a_refused_system_message_goes_into_the_first_user_message(llama2: ChatTemplate) -> None:
    chat = [system("Be kind"), user("hello"), assistant("hi"), user("again")]
    assert llama2.render(chat) == "<s>[INST] Be kind\n\nhello [/INST] hi </s><s>[INST] again [/INST]"


def test_a_system_message_that_a_template_leaves_out_is_folded_too(byte_level: Tokenizer) -> None:
    template = ChatTemplate(byte_level, "{% for m in messages if m.role != 'system' %}{{ m.content }};{% endfor %}")
    assert template.render([system("Be kind"), user("hello")]) == "Be kind\n\nhello;"


def test_folding_where_no_user_message_follows() -> None:
    assert fold_system([system("a")]) == [user("a")]
    assert fold_system([system("a"), assistant("b"), user("c")]) == [user("a"), assistant("b"), user("c")]
    assert fold_system([user("a"), system("b"), assistant("c"), user("d")]) == [
        user("a"),
        assistant("c"),
        user("b\n\nd"),
    ]
    assert fold_system([system("a"), system("b"), user("c")]) == [user("a\n\nb\n\nc")]


def test_messages_that_a_template_refuses(byte_level: Tokenizer) -> None:
    template = ChatTemplate(byte_level, "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ChatTemplateInvalid, match="roles must alternate"):
        template.render([user("hello")])
    with pytest.raises(ChatTemplateInvalid, match="roles must alternate"):
        template.render([system("Be kind"), user("hello")])


def test_a_model_without_template_says_what_to_do(byte_level_spec: str, make_folder) -> None:
    folder = make_folder(byte_level_spec)
    tokenizer = load_tokenizer(folder, folder / "prepared")
    assert tokenizer is not None
    with pytest.raises(ChatTemplateInvalid, match=r"without a chat template.*instruct.*raw prompt"):
        ChatTemplate(tokenizer).render([user("hello")])


def test_roles_are_a_closed_set() -> None:
    with pytest.raises(InvalidParameter, match="system, user, assistant, tool"):
        ChatMessage("user<|im_end|>", "hello")  # type: ignore[arg-type]


def test_the_text_is_that_of_transformers(twins: tuple[Tokenizer, Any]) -> None:
    ours, theirs = ChatTemplate(twins[0]), twins[1]
    for chat in ([user("hello")], [user(" a\n<b> "), assistant("日本 the user"), user("é [x] | y")]):
        messages = [{"role": message.role, "content": message.content} for message in chat]
        for generate in (True, False):
            options = {"add_generation_prompt": generate}
            assert ours.render(chat, **options) == theirs.apply_chat_template(messages, tokenize=False, **options)


# The default model


@pytest.mark.default_model
def test_the_default_model_s_template(default_tokenizer: Tokenizer) -> None:
    template = ChatTemplate(default_tokenizer)
    own = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    hello = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert template.render([user("Hello")]) == own + hello
    assert template.render([system("Be kind"), user("Hello")]) == "<|im_start|>system\nBe kind<|im_end|>\n" + hello
