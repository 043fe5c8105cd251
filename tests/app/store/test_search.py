"""Search: every word, any script, and nothing that a person types is an error (C8)."""

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paged_chat.app.store import chat_search
from turns import SEEDED, ask, finish, retry


def say(store, text, user=""):
    """A chat of one message; gives the message's id."""
    return store.add_turn(store.create_chat(title="untitled", user=user).id, None, text, []).user_message.id


def found(store, query, **options):
    return [hit.message_id for hit in store.search(query, **options)]


def marked(hit):
    return [hit.snippet[start:end] for start, end in hit.highlights]


@pytest.mark.parametrize(
    ("text", "query", "highlights"),
    [
        ("Where is the museum?", "museum", ["museum"]),
        ("Where is the museum?", "MUSE", ["muse"]),
        ("Where is the museum?", "seum the", ["the", "seum"]),
        ("100% of *all* \"quotes\"", '100% *all* "quotes"', ["100%", "*all*", '"quotes"']),
        ("isn't it?", "isn't 't", ["isn't"]),
        ("100% sure", "%", ["%"]),
        ("a * b", "*", ["*"]),
        ('say "hello"', '"', ['"', '"']),
        ('say ""hello""', '""', ['""', '""']),
        ("x AND y OR NOT z NEAR(q)", "AND OR NOT NEAR(q)", ["AND", "OR", "NOT", "NEAR(q)"]),
        ("text: value", "text:", ["text:"]),
        ("^start {a b} -c +d", "^start {a -c +d", ["^start", "{a", "-c", "+d"]),
        ("C:\\temp\\x_y", "\\temp x_y", ["\\temp", "x_y"]),
        ("三日間のリスボン旅行、博物館なし。", "リスボン", ["リスボン"]),
        ("三日間のリスボン旅行、博物館なし。", "旅行", ["旅行"]),
        ("三日間のリスボン旅行、博物館なし。", "館", ["館"]),
        ("三日間のリスボン旅行、博物館なし。", "し。", ["し。"]),
        ("三日間のリスボン旅行、博物館なし。", "三日", ["三日"]),
        ("ГДЕ музей?", "где МУЗЕЙ", ["ГДЕ", "музей"]),
        ("ГДЕ музей?", "уз", ["уз"]),
        ("Πού είναι το ΜΟΥΣΕΊΟ;", "μουσείο", ["ΜΟΥΣΕΊΟ"]),
        ("η ΟΔΟΣ", "ος", ["ΟΣ"]),
        ("η ΟΔΟΣ", "οδος", ["ΟΔΟΣ"]),
        ("die STRAẞE", "aß", ["Aẞ"]),
        ("أين المتحف؟", "المتحف", ["المتحف"]),
        ("संग्रहालय कहाँ है", "संग्रहालय", ["संग्रहालय"]),
        ("박물관이 어디예요?", "박물관", ["박물관"]),
        ("박물관이 어디예요?", "박", ["박"]),
        ("Größe ÜBER alles", "größe über", ["Größe", "ÜBER"]),
        ("family 👩‍👩‍👧 trip", "👩‍👩‍👧", ["👩‍👩‍👧"]),
        ("ok 👍", "👍", ["👍"]),
        ("one\ttwo\nthree", "one three", ["one", "three"]),
    ],
)  # fmt: skip
def test_text_is_found_whatever_it_holds(store, text, query, highlights):
    message_id = say(store, text)
    say(store, "something else")
    [hit] = store.search(query)
    assert hit.message_id == message_id
    assert marked(hit) == highlights


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(("word", "query"), [("éclair", "éclair"), ("Ré", "ré"), ("한국", "한국"), ("한", "한")])
def test_a_character_is_found_in_either_way_of_writing_it(store, form, word, query):
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    message_id = say(store, f"An {unicodedata.normalize(form, word)} here")
    [hit] = store.search(unicodedata.normalize(other, query))
    assert hit.message_id == message_id
    assert marked(hit) == [unicodedata.normalize(form, word)]


@pytest.mark.parametrize(
    "query", ["", " ", "\n\t", "zebra", "museum zebra", "mus zz", "m zz", "museums", "%", "_", "m%m"]
)
def test_what_is_not_there_is_not_found(store, query):
    say(store, "Where is the museum?")
    assert store.search(query) == []


def test_titles_come_first_then_the_newest_messages(store):
    old = store.create_chat(title="Museum of old")
    first, reply = ask(store, old.id, "Any museum?", "The museum of tiles.")
    new = store.create_chat(title="New museum")
    second, _ = ask(store, new.id, "Which museum?", "None.")
    hits = store.search("museum")
    assert [(hit.chat.id, hit.message_id) for hit in hits] == [
        (new.id, None), (old.id, None), (new.id, second.id), (old.id, reply.id), (old.id, first.id),
    ]  # fmt: skip
    assert hits[0].chat == store.chat(new.id)
    assert (hits[0].snippet, hits[0].highlights) == ("New museum", ((4, 10),))
    assert found(store, "museum", limit=3) == [None, None, second.id]
    assert found(store, "museum", limit=1) == [None]
    assert found(store, "museum", limit=0) == []


def test_a_renamed_chat_is_found_by_its_new_title_alone(store):
    chat = store.create_chat(title="Lisbon")
    store.update_chat(chat.id, title="Porto")
    assert store.search("Lisbon") == []
    assert [hit.chat.id for hit in store.search("Porto")] == [chat.id]
    assert [hit.chat.id for hit in store.search("po")] == [chat.id]


def test_a_reply_is_found_once_it_is_finished(store):
    chat = store.create_chat()
    [draft] = store.add_turn(chat.id, None, "Hello?", [SEEDED]).replies
    store.save_draft(draft.id, "The museum", (1,))
    assert found(store, "museum") == found(store, "mu") == []
    finish(store, draft.id, "The museum of tiles.")
    assert found(store, "museum") == found(store, "mu") == [draft.id]
    store.update_chat(chat.id, is_archived=True)
    assert found(store, "tiles") == [draft.id]


def test_a_reply_that_grows_on_is_found_by_what_it_became(store):
    chat = store.create_chat()
    [draft] = store.add_turn(chat.id, None, "Hello?", [SEEDED]).replies
    store.finish_reply(draft.id, text="The museum", token_ids=(1,), status="stopped", finish_reason="abort", cost=None)
    assert found(store, "museum") == [draft.id]
    store.reopen_reply(draft.id)
    assert found(store, "museum") == []
    finish(store, draft.id, "The garden")
    assert found(store, "museum") == []
    assert found(store, "garden") == [draft.id]


def test_every_branch_is_searched(store):
    chat = store.create_chat()
    question, first = ask(store, chat.id, "Where?", "The museum.")
    retry(store, question, "The garden.")
    assert found(store, "museum") == [first.id]


def test_people_find_their_own_messages_alone(store):
    hers = store.create_chat(user="ada", title="A museum")
    question, _ = ask(store, hers.id, "The museum?")
    ask(store, store.create_chat(user="bob", title="His museum").id, "Our museum?")
    assert found(store, "museum", user="ada") == found(store, "mu", user="ada") == [None, question.id]
    assert found(store, "museum") == []


def test_a_snippet_is_one_line_around_the_first_word_found(store):
    say(store, "before\n" * 20 + "the\tmuseum of\ntiles " + "after " * 40)
    [hit] = store.search("tiles museum")
    assert hit.snippet == "… " + "before " * 5 + "the museum of tiles " + "after " * 17 + "af…"
    assert marked(hit) == ["museum", "tiles"]


def test_a_short_text_is_its_own_snippet(store):
    say(store, "The museum.")
    [hit] = store.search("the")
    assert (hit.snippet, hit.highlights) == ("The museum.", ((0, 3),))


def test_a_word_longer_than_a_snippet_is_shown_whole(store):
    long_word = "Donau" * 60
    say(store, f"see {long_word} there")
    [hit] = store.search(long_word)
    assert marked(hit) == [long_word]
    assert hit.snippet == f"see {long_word}…"


def test_words_that_overlap_are_marked_once(store):
    say(store, "museums")
    [hit] = store.search("mus museum use")
    assert hit.highlights == ((0, 6),)


def test_a_query_of_any_length_is_answered(store):
    message_id = say(store, "museum " * 500)
    assert found(store, "museum " * 5000) == [message_id]
    assert found(store, "x" * 100_000) == []
    assert found(store, " ".join(map(str, range(10_000)))) == []


@pytest.mark.parametrize("many_places", [1, 4, 10_000])
@pytest.mark.parametrize("query", ["zu", "Z", "ユ", "zu ab", "z u"])
def test_one_or_two_characters_are_found_whether_rare_or_common(store, monkeypatch, query, many_places):
    """For rare ones the index is asked, by the beginnings of trigrams; for common ones each message is looked at."""
    monkeypatch.setattr(chat_search, "MANY_PLACES", many_places)
    wanted = [say(store, text) for text in ("ab Zu", "xyzU ab ユ", "ユzu ab")]
    say(store, "ab")
    for _ in range(5):
        say(store, "other")
    expected = {"zu": wanted, "Z": wanted, "ユ": wanted[1:], "zu ab": wanted, "z u": wanted}[query]
    assert found(store, query) == expected[::-1]
    assert found(store, query, limit=1) == expected[:-2:-1]


words = st.text(st.sampled_from("abAé日本\"*%'-(:^ \n"), max_size=6)


@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(words, min_size=1, max_size=4),
    query=st.text(max_size=8) | words,
    many_places=st.sampled_from([1, 3, 10_000]),
)
@example(texts=["\0"], query="\0", many_places=1)
@example(texts=["a"], query='"a', many_places=1)
def test_a_search_finds_what_holds_every_word(temporary_store, texts, query, many_places):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_search, "MANY_PLACES", many_places)
        user = temporary_store.create_chat().id
        by_id = {say(temporary_store, text, user=user): text.replace("\0", "\ufffd") for text in texts}
        wanted = unicodedata.normalize("NFC", query.replace("\0", "\ufffd")).lower().split()
        expected = [
            message_id
            for message_id, text in sorted(by_id.items(), reverse=True)
            if wanted and all(word in text.lower() for word in wanted)
        ]
        hits = found(temporary_store, query, user=user)
        assert [message_id for message_id in hits if message_id is not None] == expected
