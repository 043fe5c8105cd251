"""Who may log in."""

import pytest

from paged_chat.app.api.accounts import AccountsRefused, read_accounts


def test_names_and_passwords_from_the_command_line_and_a_file(tmp_path):
    file = tmp_path / "users.txt"
    file.write_text("# the family\nann:one:two\n\n  bob:b\n")
    accounts = read_accounts(["cem:c"], file)
    assert len(accounts) == 3
    assert accounts.check("ann", "one:two")
    assert accounts.check("cem", "c")
    assert not accounts.check("ann", "one")
    assert not accounts.check("ann", "")
    assert not accounts.check("nobody", "")
    assert not accounts.check("ann", "\ud800")


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        (["ann"], "--auth: write USER:PASSWORD, neither of them empty"),
        ([":secret"], "--auth: write USER:PASSWORD, neither of them empty"),
        (["ann:"], "--auth: write USER:PASSWORD, neither of them empty"),
        (["ann:a", "ann:secret"], "--auth: ann has a password already: name each user once"),
    ],
)
def test_pairs_that_mean_nothing_are_refused_without_a_password_in_the_words(pairs, reason):
    with pytest.raises(AccountsRefused) as refused:
        read_accounts(pairs, None)
    assert str(refused.value) == reason


def test_a_bad_line_of_a_file_is_named(tmp_path):
    file = tmp_path / "users.txt"
    file.write_text("ann:a\nbob\n")
    with pytest.raises(AccountsRefused, match=r"users\.txt, line 2: write USER:PASSWORD"):
        read_accounts([], file)


def test_a_file_that_names_nobody_or_is_not_there_is_refused(tmp_path):
    file = tmp_path / "users.txt"
    with pytest.raises(AccountsRefused, match="can't be read: No such file"):
        read_accounts([], file)
    file.write_text("# nobody yet\n")
    with pytest.raises(AccountsRefused, match="names nobody"):
        read_accounts([], file)
