"""How a chat's text and the ids of its replies become one list of ids.

A chat's prompt is what the model was sent at the last turn, then the reply's own ids, then what the template writes
behind a reply. So two places need care:

- Before a reply. A template may write something else before a reply in history (its *heading*) than for a reply that
  is to come (its *opening*): Llama 2 writes a space before replies in history, DeepSeek R1 opens a thought only for
  new ones. The model has read the opening, so the opening stays.
- After a reply. A reply that came to its end has its end token, and the template writes one too. It must be there
  once, and the template's is kept: where it is another one (gpt-oss ends replies with <|return|>, and wants <|end|> in
  history), the reply's own costs nothing to lose, for nobody has read the last token of a reply. A reply that was
  stopped has no end token and gets the template's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .chat_message import ChatMessage
from .control_tokens import Shield
from .tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat's text so far, most of it encoded.

    settled: ids that don't change any more, whatever text follows.
    tail: the text behind them, shielded.
    """

    tokenizer: Tokenizer
    shield: Shield
    settled: list[int] = field(default_factory=list)
    tail: str = ""

    def ids(self, opening: str) -> list[int]:
        """The prompt for a reply that begins behind this opening."""
        return self.settled + self._encoded(self.tail + opening)

    def extended(
        self, text: str, messages: Sequence[ChatMessage], heading: str | None, opening: str | None
    ) -> "Prompt":
        """With more of the chat behind it.

        text: what the template writes of `messages`, with a mark for each reply whose ids are known.
        heading: what stands before such a reply there, and is replaced by the `opening`; None where that isn't known.
        """
        prompt = self
        before, *behind = text.split(self.shield.splice_mark)
        replies = [message.token_ids for message in messages if message.token_ids is not None]
        prompt = replace(prompt, tail=prompt.tail + before)
        for reply, after in zip(replies, behind, strict=True):
            prompt = prompt._spliced(reply, after, heading, opening)
        return prompt._settled()

    def _spliced(self, reply: Sequence[int], after: str, heading: str | None, opening: str | None) -> "Prompt":
        before = self.tail
        if heading is not None and opening is not None and before.endswith(heading):
            before = before.removesuffix(heading) + opening
        if reply and reply[-1] in self.tokenizer.control_ids:
            ending = self.shield.control_tokens.leading(after)
            if ending is not None:
                if self.tokenizer.id_of(ending[1]) == reply[-1]:
                    after = after[ending.start(1) :]
                reply = reply[:-1]
        return replace(self, settled=[*self.settled, *self._encoded(before), *reply], tail=after)

    def _settled(self) -> "Prompt":
        """Encodes up to the last control token, so that the tail of a chat without known ids stays short."""
        position = self.shield.control_tokens.last_separator_in(self.tail)
        if position == 0:
            return self
        return replace(self, settled=self.settled + self._encoded(self.tail[:position]), tail=self.tail[position:])

    def _encoded(self, text: str) -> list[int]:
        return self.tokenizer.encode_shielded(text, self.shield, at_start=not self.settled)
