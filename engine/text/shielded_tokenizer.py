"""A tokenizer that reads shielded text (see control_tokens.py)."""

import json
from typing import Any

import tokenizers
from tokenizers import AddedToken, normalizers

from ..errors import ModelFileInvalid
from .control_tokens import Shield
from .tokenizer_check import called


class ShieldedTokenizer:
    """A copy of a tokenizer that reads stand-ins as the characters they stand for, once control tokens are cut out.

    tokenizers cuts added tokens out of the text first and normalises the rest, so that is where stand-ins turn back;
    all else about the text (prefix spaces, words across a stand-in) stays as it is.
    """

    def __init__(self, original: tokenizers.Tokenizer, shield: Shield) -> None:
        self.shield = shield
        control_texts = shield.control_tokens.texts
        added = original.get_added_tokens_decoder().values()
        self._copy = _shielded(_copy(original), shield)
        if self._forged() or any(token.normalized for token in added if token.content in control_texts):
            unforgeable = tokenizers.Tokenizer.from_str(_without_ways_to_forge(original.to_str(), control_texts))
            self._copy = _shielded(unforgeable, shield)
        self._forgeable = self._forged()

    def encode(self, text: str, *, at_start: bool = True) -> list[int]:
        """Ids; at the start some tokenizers put a space, which they don't behind a control token.

        Raises ModelFileInvalid where stand-ins are of no use, for the vocabulary makes control tokens of plain text.
        """
        if self._forgeable is not None and not self.shield.is_free_in([text]):
            raise ModelFileInvalid(
                f"this model's tokenizer makes the control token {self._forgeable} out of plain text, "
                "so a message that contains it can't be kept apart from the chat's own structure"
            )
        if at_start:
            return self._ids(text)
        return self._ids(self.shield.splice_mark + text)[1:]

    def _ids(self, text: str) -> list[int]:
        token_ids: list[int] = called(self._copy.encode, text, add_special_tokens=False).ids
        return token_ids

    def _forged(self) -> str | None:
        """A control token that comes out of its own shielded text, alone or between words."""
        for text in sorted(self.shield.control_tokens.texts):
            token_id = self._copy.token_to_id(text)
            covered = self.shield.cover(text)
            if any(token_id in self._ids(around) for around in (covered, f"a{covered}a", f"a {covered} a")):
                return text
        return None


def _copy(original: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A copy with settings of its own; the vocabulary, which takes long to copy, is shared where it can be."""
    added = original.get_added_tokens_decoder()
    copy = tokenizers.Tokenizer(original.model)
    copy.add_tokens([added[token_id] for token_id in sorted(added)])
    if any(copy.token_to_id(token.content) != token_id for token_id, token in added.items()):
        return tokenizers.Tokenizer.from_str(original.to_str())  # ids with gaps can't be given out anew
    if original.normalizer is not None:
        copy.normalizer = original.normalizer
    if original.pre_tokenizer is not None:
        copy.pre_tokenizer = original.pre_tokenizer
    return copy


def _shielded(copy: tokenizers.Tokenizer, shield: Shield) -> tokenizers.Tokenizer:
    steps = [normalizers.Replace(stand_in, real) for real, stand_in in shield.stand_ins.items()]
    if copy.normalizer is not None:
        steps.append(copy.normalizer)
    copy.normalizer = normalizers.Sequence(steps)
    copy.add_special_tokens([AddedToken(shield.splice_mark, normalized=False, special=True)])
    return copy


def _without_ways_to_forge(spec: str, control_texts: frozenset[str]) -> str:
    """The tokenizer.json without what can make a control token of text that has been normalised."""
    content: dict[str, Any] = json.loads(spec)
    for token in content["added_tokens"]:
        if token["content"] in control_texts:
            token["normalized"] = False
    model = content["model"]
    if "merges" in model:
        # Merges that were derived from a SentencePiece vocabulary may lead to its control tokens, which SentencePiece
        # itself never makes from text.
        model["merges"] = [merge for merge in model["merges"] if _merged(merge) not in control_texts]
    return json.dumps(content)


def _merged(merge: str | list[str]) -> str:
    return merge.replace(" ", "", 1) if isinstance(merge, str) else "".join(merge)
