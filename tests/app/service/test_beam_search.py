"""Replies that a beam search writes: seen while it goes on, told at its end, stopped with what there is."""

import pytest

from chat_desk import next_update, until, updates_of
from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import SamplingParams

BEAMS = SamplingParams(beam_width=3, n=2, max_tokens=24, ignore_eos=True)


def searched(desk, sampling=BEAMS):
    """A chat whose question is being answered by a search, held after some steps."""
    chat = desk.service.create_chat(sampling=sampling)
    watcher = desk.service.watch(chat.id)
    desk.fake.hold()
    turn = desk.service.send(chat.id, "a question")
    desk.fake.let(6)
    return chat, watcher, turn


def next_search(watcher):
    """How the search stands after the steps that it was given."""
    while True:
        update = next_update(watcher)
        if update.search is not None and len(update.search.token_ids) == 6:
            return update


def test_a_search_is_seen_while_it_goes_on_and_its_replies_come_at_its_end(desk):
    chat, watcher, turn = searched(desk)
    update = next_search(watcher)
    assert (update.text, update.status, update.num_generated_tokens) == ("", "draft", 0)
    assert update.search.num_beams == 3
    desk.fake.go()
    ends = [update for update in updates_of(desk.finish(chat)) if update.has_ended]
    assert [(end.status, end.finish_reason, end.num_generated_tokens, end.search) for end in ends] == [
        ("done", "length", 24, None)
    ] * 2
    first, second = (desk.stored(reply) for reply in turn.replies)
    assert len(first.token_ids) == len(second.token_ids) == 24
    assert first.token_ids != second.token_ids


def test_one_reply_stopped_ends_at_once_and_the_search_goes_on_for_the_other(desk):
    chat, watcher, turn = searched(desk)
    next_search(watcher)
    first, second = turn.replies
    assert desk.service.stop(chat.id, first.id) == 1
    until(lambda: desk.stored(first).status == "stopped")
    desk.fake.go()
    until(lambda: desk.stored(second).status == "done")
    assert len(desk.stored(second).token_ids) == 24
    assert not desk.stored(first).token_ids


def test_stopped_a_search_leaves_the_best_that_it_had(desk):
    chat, watcher, turn = searched(desk)
    next_search(watcher)
    desk.service.stop(chat.id)
    until(lambda: all(desk.stored(reply).status == "stopped" for reply in turn.replies))
    assert {len(desk.stored(reply).token_ids) for reply in turn.replies} == {6}


def test_a_chat_that_draws_can_not_search(desk):
    chat = desk.service.create_chat(sampling=SamplingParams(temperature=0.7))
    with pytest.raises(InvalidParameter, match="set temperature to 0"):
        desk.service.update_chat(chat.id, sampling=SamplingParams(temperature=0.7, beam_width=4))
