"""Tokens as an array that grows with their list."""

from paged_chat.engine.token_history import TokenHistory


def test_it_grows_with_its_list():
    history, token_ids = TokenHistory(), [5, 6]
    assert history.of(token_ids).tolist() == [5, 6]
    for token_id in range(100):
        token_ids.append(token_id)
        assert history.of(token_ids).tolist() == token_ids
    assert history.of(token_ids).tolist() == token_ids


def test_one_of_nothing_is_empty():
    assert TokenHistory().of([]).tolist() == []
