"""Screens come and go: replies go on without them, and every one of them is told everything."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from chat_desk import MODEL, next_update, until, updates_of
from paged_chat.app.service.chat_events import ChatChanged, ChatsChanged, EngineStatus
from paged_chat.app.store.store import Store
from patience import PATIENCE_S

# C1, C2, C4: screens come and go


def test_c1_two_chats_stream_at_once_and_each_reply_lands_in_its_own(desk, service):
    desk.fake.enqueue("About Lisbon, at length")
    desk.fake.hold()
    lisbon, porto = service.create_chat(), service.create_chat()
    service.send(lisbon.id, "Lisbon")
    with service.watch(lisbon.id) as watcher:
        desk.let(lisbon, 5)
        assert next_update(watcher).chat_id == lisbon.id
    # The person is elsewhere from now on.
    desk.fake.enqueue("About Porto")
    service.send(porto.id, "Porto")
    desk.fake.go()
    desk.finish(porto)
    desk.finish(lisbon)
    assert desk.texts(lisbon) == ["Lisbon", "About Lisbon, at length"]
    assert desk.texts(porto) == ["Porto", "About Porto"]


def test_c2_a_stale_tab_adds_a_branch_and_overwrites_nothing(desk, service):
    chat = service.create_chat()
    [shown] = desk.ask(chat, "Lisbon", "Sunny")
    with service.watch(chat.id) as stale_tab:
        stale_tab.get(PATIENCE_S)
        desk.ask(chat, "From the first tab", "One")
        # The second tab still shows the first turn only, and sends below what it shows.
        desk.fake.enqueue("Two")
        service.send(chat.id, "From the second tab", parent_id=shown.id)
        desk.finish(chat)
        assert any(event == ChatChanged(chat.id) for event in iter(lambda: stale_tab.get(0.2), None))
    assert desk.texts(chat) == ["Lisbon", "Sunny", "From the second tab", "Two"]
    assert [message.text for message in service.tree(chat.id).children(shown.id)] == [
        "From the first tab",
        "From the second tab",
    ]


def test_c2_a_stale_tab_hears_of_a_change_made_by_another_process(desk, service):
    chat = service.create_chat()
    with Store(desk.path) as another, service.watch(chat.id) as tab:
        assert tab.get(PATIENCE_S) == ChatChanged(chat.id)
        assert tab.get(0) is None
        another.update_chat(chat.id, title="Renamed elsewhere")
        assert tab.get(PATIENCE_S) == ChatChanged(chat.id)
        assert service.chat(chat.id).title == "Renamed elsewhere"
        another.delete_chat(chat.id)
        assert tab.get(PATIENCE_S) == ChatChanged(chat.id, is_deleted=True)


def test_c4_closing_a_screen_ends_nothing_and_the_next_one_sees_the_reply_from_its_start(desk, service):
    desk.fake.enqueue("A reply that outlives the page")
    desk.fake.hold()
    chat = service.create_chat()
    service.send(chat.id, "Go")
    with service.watch(chat.id):
        desk.let(chat, 7)
    with service.watch(chat.id) as returned:
        assert returned.get(PATIENCE_S) == ChatChanged(chat.id)
        update = next_update(returned)
        assert (update.text, update.new_text) == ("A reply", "A reply")
    assert desk.texts(chat) == ["Go", "A reply"]
    desk.fake.go()
    desk.finish(chat)
    assert desk.texts(chat) == ["Go", "A reply that outlives the page"]


def test_c4_a_screen_that_comes_after_the_end_finds_the_reply_stored(desk, service):
    chat = service.create_chat()
    desk.ask(chat, "Go", "Done")
    with service.watch(chat.id, until_idle=True) as watcher:
        assert list(watcher) == [ChatChanged(chat.id)]


# Many watchers


def test_twenty_watchers_each_get_the_whole_reply_by_appending(desk, service):
    text = "The quick brown fox jumps over the lazy dog. " * 4
    desk.fake.enqueue(text)
    desk.fake.pace.pause_s = 0.001
    chat = service.create_chat()
    service.send(chat.id, "Go")

    def follow(delay_s):
        time.sleep(delay_s)  # some come late
        appended, last = "", None
        for update in updates_of(list(service.watch(chat.id, until_idle=True))):
            appended = update.text if update.new_text == update.text else appended + update.new_text
            assert update.text == appended
            last = update
        return appended, last

    with ThreadPoolExecutor(20) as screens:
        told = list(screens.map(follow, [0.01 * number for number in range(20)], timeout=PATIENCE_S))
    assert {appended for appended, _ in told if appended} == {text}
    assert all(last.status == "done" for _, last in told if last is not None)


def test_an_event_loop_follows_several_chats_at_once(desk, service):
    desk.fake.pace.pause_s = 0.001
    chats = [service.create_chat() for _ in range(3)]

    async def follow(chat):
        desk.fake.enqueue(f"Reply in {chat.id}")
        service.send(chat.id, "Go")
        async with service.watch(chat.id, until_idle=True) as watcher:
            return [event async for event in watcher][-1].text

    async def story():
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.gather(*(follow(chat) for chat in chats))

    texts = asyncio.run(story())
    assert sorted(texts) == sorted(f"Reply in {chat.id}" for chat in chats)


def test_a_watcher_that_nobody_reads_costs_the_others_nothing(desk, service):
    chat = service.create_chat()
    idle = service.watch(chat.id)
    desk.ask(chat, "Go", "A reply of some length")
    updates = updates_of(list(iter(lambda: idle.get(0.2), None)))
    assert [update.text for update in updates] == ["A reply of some length"]


def test_the_list_of_chats_and_the_engine_are_watched_too(desk, service):
    until(lambda: service.engine_status.phase == "ready")
    with service.watch_app() as watcher:
        status = watcher.get(PATIENCE_S)
        assert status == EngineStatus(phase="ready", model=MODEL, window=4096, load_s=0.25)
        chat = service.create_chat()
        assert watcher.get(PATIENCE_S) == ChatsChanged()
        service.rename(chat.id, "Another name")
        assert watcher.get(PATIENCE_S) == ChatsChanged()
        service.delete_chat(chat.id)
        assert watcher.get(PATIENCE_S) == ChatsChanged()


def test_the_list_is_told_of_chats_that_another_process_makes(desk, service):
    with Store(desk.path) as another, service.watch_app() as watcher:
        watcher.get(PATIENCE_S)
        another.create_chat(title="From the terminal")
        assert ChatsChanged() in iter(lambda: watcher.get(PATIENCE_S), None)
        assert [chat.title for chat in service.chats()] == ["From the terminal"]
