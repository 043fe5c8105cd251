"""Random histories of a store against a plain model: no step loses, moves or changes a message it wasn't told to."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from paged_chat.app.chats import NewReply
from paged_chat.app.errors import CannotContinue, ChatNotFound, MessageNotFound, ReplyFinished
from paged_chat.app.store.store import Store
from paged_chat.engine.request import SamplingParams

WORDS = st.sampled_from(["alpha", "beta", "gamma"])


@dataclass
class ModelMessage:
    chat: str
    parent: int | None
    text: str
    status: str = "done"
    finish_reason: str | None = None
    deleted_with: int | None = None
    leaf_before: int | None = None


@dataclass
class Model:
    """What the store should hold."""

    leaves: dict[str, int | None] = field(default_factory=dict)  # of chats, deleted ones too
    deleted_chats: set[str] = field(default_factory=set)
    messages: dict[int, ModelMessage] = field(default_factory=dict)

    def is_there(self, message_id: int) -> bool:
        message = self.messages.get(message_id)
        return message is not None and message.deleted_with is None and message.chat not in self.deleted_chats

    def children(self, chat: str, parent: int | None) -> list[int]:
        return [
            id for id, message in sorted(self.messages.items())
            if message.chat == chat and message.parent == parent and message.deleted_with is None
        ]  # fmt: skip

    def newest_leaf(self, chat: str, message_id: int) -> int:
        children = self.children(chat, message_id)
        return self.newest_leaf(chat, children[-1]) if children else message_id

    def branch(self, message_id: int) -> list[int]:
        children = self.children(self.messages[message_id].chat, message_id)
        return [message_id, *chain.from_iterable(map(self.branch, children))]

    def purge(self) -> None:
        self.messages = {
            id: message for id, message in self.messages.items()
            if message.chat not in self.deleted_chats and message.deleted_with is None
        }  # fmt: skip
        self.leaves = {chat: leaf for chat, leaf in self.leaves.items() if chat not in self.deleted_chats}
        self.deleted_chats = set()


class StoreMachine(RuleBasedStateMachine):
    chats = Bundle("chats")
    messages = Bundle("messages")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.model = Model()
        self.open()

    def open(self) -> None:
        self.store = Store(Path(self.folder.name) / "chats.db")

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(target=chats)
    def create_chat(self):
        chat = self.store.create_chat()
        self.model.leaves[chat.id] = None
        return chat.id

    @rule(target=messages, chat=chats, parent=st.none() | messages, text=WORDS, num_replies=st.integers(0, 2))
    def ask(self, chat, parent, text, num_replies):
        replies = [NewReply(model=None, sampling=SamplingParams(seed=seed)) for seed in range(num_replies)]
        if chat in self.model.deleted_chats or chat not in self.model.leaves:
            with pytest.raises(ChatNotFound):
                self.store.add_turn(chat, parent, text, replies)
            return multiple()
        if parent is not None and (not self.model.is_there(parent) or self.model.messages[parent].chat != chat):
            with pytest.raises(MessageNotFound):
                self.store.add_turn(chat, parent, text, replies)
            return multiple()
        turn = self.store.add_turn(chat, parent, text, replies)
        return multiple(*self.added(chat, parent, text, turn))

    @rule(target=messages, question=messages)
    def retry(self, question):
        if not self.model.is_there(question):
            return multiple()
        chat = self.model.messages[question].chat
        turn = self.store.add_turn(chat, question, None, [NewReply(model=None, sampling=SamplingParams())])
        return multiple(*self.added(chat, question, None, turn))

    def added(self, chat, parent, text, turn):
        if text is not None:
            parent, over = turn.user_message.id, parent
            self.model.messages[parent] = ModelMessage(chat, over, text)
        for reply in turn.replies:
            self.model.messages[reply.id] = ModelMessage(chat, parent, "", "draft")
        ids = [reply.id for reply in turn.replies] + ([parent] if text is not None else [])
        self.model.leaves[chat] = ids[0]
        return ids

    @rule(
        reply=messages,
        text=WORDS,
        end=st.sampled_from([None, ("done", "stop"), ("done", "length"), ("stopped", "abort")]),
    )
    def write(self, reply, text, end):
        def write():
            if end is None:
                return self.store.save_draft(reply, text, (1,))
            status, reason = end
            return self.store.finish_reply(
                reply, text=text, token_ids=(1,), status=status, finish_reason=reason, cost=None
            )

        message = self.model.messages.get(reply)
        if message is None or message.status != "draft":
            with pytest.raises((MessageNotFound, ReplyFinished)):
                write()
            return
        write()
        message.text = text
        message.status, message.finish_reason = end or ("draft", None)

    @rule(reply=messages)
    def continue_reply(self, reply):
        message = self.model.messages.get(reply)
        if not self.model.is_there(reply):
            with pytest.raises(MessageNotFound):
                self.store.reopen_reply(reply)
        elif message.finish_reason not in ("length", "abort") or self.model.children(message.chat, reply):
            with pytest.raises(CannotContinue):
                self.store.reopen_reply(reply)
        else:
            self.store.reopen_reply(reply)
            message.status, message.finish_reason = "draft", None

    @rule(message_id=messages)
    def show(self, message_id):
        if self.model.is_there(message_id):
            chat = self.model.messages[message_id].chat
            self.store.set_active_leaf(chat, message_id)
            self.model.leaves[chat] = message_id

    @rule(message_id=messages)
    def delete_message(self, message_id):
        if not self.model.is_there(message_id):
            with pytest.raises(MessageNotFound):
                self.store.delete_message(message_id)
            return
        self.store.delete_message(message_id)
        top = self.model.messages[message_id]
        branch = self.model.branch(message_id)
        for id in branch:
            self.model.messages[id].deleted_with = message_id
        if self.model.leaves[top.chat] in branch:
            top.leaf_before = self.model.leaves[top.chat]
            siblings = self.model.children(top.chat, top.parent)
            self.model.leaves[top.chat] = self.model.newest_leaf(top.chat, siblings[-1]) if siblings else top.parent

    @rule(message_id=messages)
    def restore_message(self, message_id):
        top = self.model.messages.get(message_id)
        parent_is_there = top is not None and (top.parent is None or self.model.is_there(top.parent))
        if top is None or top.deleted_with != message_id or not parent_is_there or top.chat in self.model.deleted_chats:
            with pytest.raises((MessageNotFound, ChatNotFound)):
                self.store.restore_message("nobody's" if top is None else top.chat, message_id)
            return
        self.store.restore_message(top.chat, message_id)
        for message in self.model.messages.values():
            if message.deleted_with == message_id:
                message.deleted_with = None
        self.model.leaves[top.chat] = top.leaf_before or self.model.leaves[top.chat]
        top.leaf_before = None

    @rule(chat=chats)
    def delete_chat(self, chat):
        if chat in self.model.leaves and chat not in self.model.deleted_chats:
            self.store.delete_chat(chat)
            self.model.deleted_chats.add(chat)

    @rule(chat=chats)
    def restore_chat(self, chat):
        if chat in self.model.deleted_chats:
            self.store.restore_chat(chat)
            self.model.deleted_chats.remove(chat)
        else:
            with pytest.raises(ChatNotFound):
                self.store.restore_chat(chat)

    @rule(target=chats, message_id=messages)
    def fork(self, message_id):
        if not self.model.is_there(message_id):
            return multiple()
        path: list[ModelMessage] = []
        at: int | None = message_id
        while at is not None:
            path.insert(0, self.model.messages[at])
            at = path[0].parent
        fork = self.store.fork_chat(path[0].chat, message_id)
        parent = None
        for copied, original in zip(self.store.tree(fork.id), path, strict=True):
            is_draft = original.status == "draft"
            self.model.messages[copied.id] = ModelMessage(
                fork.id, parent, original.text, "stopped" if is_draft else original.status,
                "abort" if is_draft else original.finish_reason,
            )  # fmt: skip
            parent = copied.id
        self.model.leaves[fork.id] = parent
        return fork.id

    @rule()
    def close_and_open(self):
        self.store.close()
        self.open()
        for message in self.model.messages.values():
            if message.status == "draft":
                message.status, message.finish_reason = "stopped", "abort"
        self.model.purge()

    @invariant()
    def every_chat_is_as_the_model_has_it(self):
        chats = {chat.id: chat.active_leaf_id for chat in self.store.chats()}
        assert chats == {
            chat: leaf for chat, leaf in self.model.leaves.items() if chat not in self.model.deleted_chats
        }  # fmt: skip
        for chat in chats:
            tree = self.store.tree(chat)
            assert [
                (message.id, message.parent_id, message.text, message.status, message.finish_reason) for message in tree
            ] == [
                (id, message.parent, message.text, message.status, message.finish_reason)
                for id, message in sorted(self.model.messages.items())
                if message.chat == chat and message.deleted_with is None
            ]
            for message in tree:
                assert [child.id for child in tree.children(message.id)] == self.model.children(chat, message.id)

    @invariant()
    @precondition(lambda self: len(self.model.messages) < 20)
    def what_is_finished_is_found(self):
        for word in ("alpha", "ta"):
            assert [hit.message_id for hit in self.store.search(word) if hit.message_id is not None] == [
                id for id, message in sorted(self.model.messages.items(), reverse=True)
                if word in message.text and message.status != "draft" and self.model.is_there(id)
            ]  # fmt: skip


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
