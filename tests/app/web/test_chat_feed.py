"""What one open chat is told: everything once, and of a growing reply its last block."""

from collections.abc import Iterator

import pytest

from fake_engine import FakeEngine
from paged_chat.app.errors import ChatNotFound
from paged_chat.app.service.chat_events import ReplyUpdate
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.store.store import Store, default_path
from paged_chat.app.web.chat_feed import WINDOW, ChatFeed


@pytest.fixture
def service(fake: FakeEngine) -> Iterator[ChatService]:
    with Store(default_path()) as store, ChatService(store, fake.open) as service:
        yield service


def ask(service: ChatService, chat_id: str, text: str) -> int:
    """Sends, waits for the end, and gives the reply's id."""
    [reply] = service.send(chat_id, text).replies
    for _ in service.watch(chat_id, until_idle=True):
        pass
    return reply.id


def updates(service: ChatService, chat_id: str) -> Iterator[ReplyUpdate]:
    return (event for event in service.watch(chat_id) if isinstance(event, ReplyUpdate))


def test_a_page_is_told_everything_at_first_and_then_what_has_changed(service, fake):
    chat = service.create_chat()
    fake.enqueue("a1")
    first_reply = ask(service, chat.id, "q1")
    feed = ChatFeed(service, chat.id, "")
    [news] = feed.read()
    assert news["path"] == [first_reply - 1, first_reply]
    assert [view["blocks"] for view in news["messages"]] == [("<p>q1</p>",), ("<p>a1</p>",)]
    assert news["chat"]["title"] == "q1"
    [news] = feed.read()
    assert news["messages"] == []
    fake.enqueue("a2")
    ask(service, chat.id, "q2")
    [news] = feed.read()
    assert [view["text"] for view in news["messages"]] == ["q2", "a2"]
    assert len(news["path"]) == 4


def test_a_retry_changes_the_count_of_siblings_alone(service, fake):
    chat = service.create_chat()
    fake.enqueue("a1")
    reply = ask(service, chat.id, "q1")
    feed = ChatFeed(service, chat.id, "")
    feed.read()
    fake.enqueue("b1")
    [retried] = service.retry(chat.id, reply).replies
    for _ in service.watch(chat.id, until_idle=True):
        pass
    [news] = feed.read()
    assert [(view["id"], view["sibling_ids"]) for view in news["messages"]] == [(retried.id, (reply, retried.id))]
    service.pick(chat.id, reply)
    [news] = feed.read()
    assert news["path"] == [reply - 1, reply]


def test_a_growing_reply_is_told_bit_by_bit_and_then_whole(service, fake):
    chat = service.create_chat()
    fake.enqueue("One.\n\nTwo.")
    fake.hold()
    [reply] = service.send(chat.id, "q").replies
    feed = ChatFeed(service, chat.id, "")
    [news] = feed.read()
    assert [view["blocks"] for view in news["messages"]] == [("<p>q</p>",), None]
    told = updates(service, chat.id)
    first = feed.reply(next(told))
    assert first is not None
    assert (first["id"], first["blocks"], first["status"]) == (reply.id, (), "draft")
    fake.let(7)
    pieces = []
    while "".join(pieces) != "One.\n\nT":
        news = feed.reply(next(told))
        assert news is not None
        pieces.append(news["new_text"])
    assert news["blocks"][-1] == "<p>T</p>"
    fake.go()
    page = ["<p>One.</p>", "<p>T</p>"]
    while news["status"] == "draft":
        news = feed.reply(next(told))
        assert news is not None
        assert news["num_kept"] >= 1, "what is finished isn't told again"
        page[news["num_kept"] :] = news["blocks"]
    assert (page, news["status"]) == (["<p>One.</p>", "<p>Two.</p>"], "done")
    assert news["cost"]["num_generated_tokens"] == 11


def test_a_reply_on_another_branch_is_told_when_it_is_walked_to(service, fake):
    chat = service.create_chat()
    fake.enqueue("first")
    reply = ask(service, chat.id, "q")
    fake.enqueue("second")
    fake.hold()
    [running] = service.retry(chat.id, reply).replies
    service.pick(chat.id, reply)
    feed = ChatFeed(service, chat.id, "")
    feed.read()
    told = updates(service, chat.id)
    fake.let(3)
    while (update := next(told)).text != "sec":
        assert feed.reply(update) is None, "it isn't on the page"
    assert feed.reply(update) is None
    service.pick(chat.id, running.id)
    _, so_far = feed.read()
    assert (so_far["id"], so_far["num_kept"], so_far["blocks"]) == (running.id, 0, ("<p>sec</p>",))


def test_replies_side_by_side_are_columns_until_one_is_answered(service, fake):
    chat = service.create_chat()
    fake.enqueue("a", "b", "c")
    replies = service.send(chat.id, "q", n=3).replies
    for _ in service.watch(chat.id, until_idle=True):
        pass
    feed = ChatFeed(service, chat.id, "")
    [news] = feed.read()
    assert news["columns"] == tuple(reply.id for reply in replies)
    assert [view["text"] for view in news["messages"]] == ["q", "a", "b", "c"]
    assert news["sharing"] == "3 replies used 4 blocks instead of 6"
    fake.enqueue("d")
    ask(service, chat.id, "more")
    [news] = feed.read()
    assert news["columns"] == ()


def test_a_long_chat_comes_in_windows(service, fake):
    chat = service.create_chat()
    for turn in range(WINDOW // 2 + 3):
        ask(service, chat.id, f"q{turn}")
    feed = ChatFeed(service, chat.id, "")
    [news] = feed.read()
    assert (len(news["path"]), news["num_older"]) == (WINDOW, 6)
    ask(service, chat.id, "one more")
    [news] = feed.read()
    assert (len(news["path"]), news["num_older"]) == (WINDOW + 2, 6), "what is shown stays"
    [news] = feed.read_older()
    assert (len(news["path"]), news["num_older"]) == (WINDOW + 8, 0)
    assert [view["text"] for view in news["messages"]][::2] == ["q0", "q1", "q2"]


def test_somebody_elses_chat_is_told_nothing_of(service):
    chat = service.create_chat(user="ann")
    with pytest.raises(ChatNotFound):
        ChatFeed(service, chat.id, "bob").read()
