"""Text to token ids and back."""

from collections.abc import Iterable, Sequence
from functools import cached_property

import tokenizers
from tokenizers import AddedToken

from ..errors import ModelFileInvalid
from .control_tokens import CONTROL_SHAPE, ControlTokens, Shield
from .shielded_tokenizer import ShieldedTokenizer
from .token_bytes import TokenBytes
from .tokenizer_check import called, check_first_characters, check_tokenizer
from .tokenizer_files import TokenizerFiles, without_lone_surrogates


class Tokenizer:
    """A model's tokenizer.

    Two ways in, because text comes from two sides:
    `encode` takes what people and tools wrote: the text `<|im_end|>` in it stays text.
    `encode_markup` takes what we or the template wrote: the text `<|im_end|>` in it is the token.
    Neither adds a token of its own (no BOS, no EOS); `encode_prompt` does, for a base model's raw prompt.

    Lone surrogates, which no tokenizer takes, count as U+FFFD.
    """

    def __init__(self, files: TokenizerFiles) -> None:
        """Raises ModelFileInvalid where tokenizer.json isn't one."""
        self._tokenizer = _build(files)
        check_tokenizer(self._tokenizer, files.path)
        self.bos_token = files.bos_token
        self.eos_token = files.eos_token
        self.chat_template = files.chat_template  # Jinja source; None where the model comes without
        named = {token for token in (files.bos_token, files.eos_token) if token}
        _recognise(self._tokenizer, named)
        self.token_bytes = TokenBytes(self._tokenizer)
        self.control_tokens = _control_tokens(self._tokenizer, named)
        check_first_characters(self.control_tokens.first_characters)
        self._adds_bos = self._begins_with_bos() if files.adds_bos is None else files.adds_bos
        self._shielded: ShieldedTokenizer | None = None

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """The ids of the control tokens."""
        ids = (self.id_of(text) for text in self.control_tokens.texts)
        return frozenset(token_id for token_id in ids if token_id is not None)

    def without_end(self, reply: Sequence[int]) -> Sequence[int]:
        """A reply's ids without the control token that it ends with, if it does."""
        return reply[:-1] if reply and reply[-1] in self.control_ids else reply

    @property
    def bos_id(self) -> int | None:
        return self.id_of(self.bos_token) if self.bos_token else None

    def id_of(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it, such as `<|im_end|>`; None where there is no such token."""
        token_id: int | None = self._tokenizer.token_to_id(token)
        return token_id

    def encode(self, text: str) -> list[int]:
        """Ids of a text in which nothing is a control token."""
        if not self.control_tokens.occur_in(text):
            return self.encode_markup(text)
        shield = self.control_tokens.shield_for([text])
        return self.encode_shielded(shield.cover(text), shield)

    def encode_markup(self, text: str) -> list[int]:
        """Ids of a text in which control tokens are what they say; for text that no user can write into."""
        return _ids(self._tokenizer, text)

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a raw prompt for a base model: markup, behind BOS if this tokenizer adds one; never behind two."""
        token_ids = self.encode_markup(text)
        bos_id = self.bos_id
        if self._adds_bos and bos_id is not None and token_ids[:1] != [bos_id]:
            return [bos_id, *token_ids]
        return token_ids

    def encode_shielded(self, text: str, shield: Shield, *, at_start: bool = True) -> list[int]:
        """Ids of a text in which stand-ins keep some control tokens from being any: the others are what they say.

        at_start: nothing precedes the text; some tokenizers put a space there.

        Raises ModelFileInvalid for a text with stand-ins where the vocabulary makes control tokens of plain text.
        """
        shielded = self._shielded
        if shielded is None or shielded.shield != shield:
            shielded = self._shielded = ShieldedTokenizer(self._tokenizer, shield)
        return shielded.encode(without_lone_surrogates(text), at_start=at_start)

    def decode(self, token_ids: Iterable[int], skip_special: bool = True) -> str:
        """Text of these ids; bytes that make no character read U+FFFD, ids beyond the vocabulary nothing."""
        spelled: list[bytes] = []
        for token_id in token_ids:
            token = self.token_bytes.of(token_id, first=not spelled, skip_special=skip_special)
            if token is not None:
                spelled.append(token)
        return b"".join(spelled).decode("utf-8", "replace")

    def _begins_with_bos(self) -> bool:
        """Whether the tokenizer's own post-processor puts BOS before a text."""
        processed = _ids(self._tokenizer, "a", add_special_tokens=True)
        return self.bos_id is not None and processed[:1] == [self.bos_id] and processed != self.encode_markup("a")


def _build(files: TokenizerFiles) -> tokenizers.Tokenizer:
    try:
        tokenizer = tokenizers.Tokenizer.from_str(files.tokenizer_json)
        # Settings for training and batches, which some models leave in the file.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if getattr(tokenizer.model, "dropout", None) is not None:
            tokenizer.model.dropout = None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as fault:  # a panic inside the Rust library isn't an Exception
        raise ModelFileInvalid(f"{files.path} is not a tokenizer that can be read: {fault}") from fault
    return tokenizer


def _recognise(tokenizer: tokenizers.Tokenizer, named: set[str]) -> None:
    """Recognise BOS and EOS in markup even if only the configuration calls them special; never grow the vocabulary."""
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    missing = sorted(name for name in named - added if tokenizer.token_to_id(name) is not None)
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in missing])


def _control_tokens(tokenizer: tokenizers.Tokenizer, named: set[str]) -> ControlTokens:
    added = [token for token in tokenizer.get_added_tokens_decoder().values() if token.content]
    control = [
        token for token in added if token.special or token.content in named or CONTROL_SHAPE.fullmatch(token.content)
    ]
    # The leftmost added token is cut out of a text first, so one that overlaps the next one's beginning takes it away.
    ends = {token.content[start:] for token in added for start in range(1, len(token.content))}
    separators = (
        token.content
        for token in control
        if not (token.lstrip or token.single_word)
        and ends.isdisjoint(token.content[:length] for length in range(1, len(token.content)))
    )
    return ControlTokens(frozenset(token.content for token in control), frozenset(separators))


def _ids(tokenizer: tokenizers.Tokenizer, text: str, add_special_tokens: bool = False) -> list[int]:
    plain = without_lone_surrogates(text)
    token_ids: list[int] = called(tokenizer.encode, plain, add_special_tokens=add_special_tokens).ids
    return token_ids
