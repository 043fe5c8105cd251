"""Futures that wait for others: each ends as the last one does, or with the first thing that goes wrong."""

from concurrent.futures import Future

from paged_chat.app.promises import chained, fulfil, refuse


def test_a_chain_ends_as_its_last_future_does():
    given, begun = Future(), Future()
    promised = chained(given, lambda word: begun if word == "go" else None)
    given.set_result("go")
    assert not promised.done()
    begun.set_result("there")
    assert promised.result() == "there"


def test_a_chain_ends_with_the_first_thing_that_goes_wrong():
    fault = ValueError("no")

    def fail(_):
        raise fault

    given, begun = Future(), Future()
    promises = [chained(given, lambda _: begun), chained(given, fail)]
    given.set_result(1)
    begun.set_exception(fault)
    refused = Future()
    promises.append(chained(refused, lambda _: begun))
    refused.set_exception(fault)
    assert [promised.exception() for promised in promises] == [fault] * 3


def test_what_nobody_waits_for_any_more_is_neither_kept_nor_refused():
    for end in (lambda promised: fulfil(promised, 1), lambda promised: refuse(promised, ValueError("no"))):
        promised = Future()
        promised.cancel()
        end(promised)
        assert promised.cancelled()
