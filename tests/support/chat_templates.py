"""Chat templates in the manner of the model families, spelled with the control tokens of the tiny tokenizers.

`APPENDING` ones write a message the same whatever comes after it, once it has been answered.
"""

from functools import cache

from paged_chat.engine.text.chat_encoder import ChatEncoder
from paged_chat.engine.text.chat_template import ChatTemplate
from paged_chat.engine.text.tokenizer import Tokenizer

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# SmolLM2: a system message of its own where none is given.
OWN_SYSTEM = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ '<|im_start|>system\\nBe kind<|im_end|>\\n' }}"
    "{% endif %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Qwen 3: thoughts leave the history, and a reply after the last question gets an empty one.
DROPS_THOUGHTS = (
    "{% set ns = namespace(last = -1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'assistant' %}{% set answer = m.content.split('</think>')[-1] | trim %}"
    "{{ '<|im_start|>assistant\\n' }}"
    "{% if loop.index0 > ns.last %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{{ answer + '<|im_end|>\\n' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# DeepSeek R1: a thought is opened for the reply to come, and not in history.
OPENS_THOUGHTS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ '<|im_start|>' + m.content.split('</think>')[-1] + '<|im_end|>' }}"
    "{% else %}{{ m.role + ': ' + m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|><think>\\n' }}{% endif %}"
)
# gpt-oss: the reply itself begins with a channel, history names one; it ends with another token than history has.
CHANNELS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role }}{% if m.role == 'assistant' %}{{ '|final' }}{% endif %}"
    "{{ '|' + m.content + '<|endoftext|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}"
)
# Llama 2: no system role, no header for replies, a space before and after them.
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}"
    "{% elif m.role == 'user' %}{{ bos_token + '[INST] ' + m.content | trim + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}"
)
# Gemma: roles must alternate, by their position; everything is trimmed.
ALTERNATING = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set offset = 1 %}{{ messages[0].content | trim }}"
    "{% else %}{% set offset = 0 %}{% endif %}"
    "{% for m in messages if m.role != 'system' %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ '<|im_start|>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content | trim + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>model\\n' }}{% endif %}"
)
# Vicuna: words for roles, and no control token but the end of a reply.
WORDS = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}"
    "{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\\n' }}"
    "{% else %}{{ 'ASSISTANT: ' + m.content + eos_token + '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
# Nothing but words: replies end where the next question begins.
WORDS_ALONE = (
    "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
# Llama 3: the date stands in the system message.
DATED = (
    "{{ '<|im_start|>system\\nToday is ' + strftime_now('%d %b %Y') + '<|im_end|>\\n' }}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Mistral: the system message goes with the last question, so it moves at every turn.
SYSTEM_LAST = (
    "{% if messages[0].role == 'system' %}"
    "{% set system = messages[0].content + '\\n\\n' %}{% set chat = messages[1:] %}"
    "{% else %}{% set system = '' %}{% set chat = messages %}{% endif %}"
    "{% for m in chat %}{% if m.role == 'user' %}"
    "{{ '<|im_start|>' + (system if loop.last else '') + m.content + '<|im_end|>' }}"
    "{% else %}{{ m.content + '<|endoftext|>' }}{% endif %}{% endfor %}"
)
# Only the last message keeps its white space.
TRIMS_HISTORY = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\\n' + (m.content if loop.last else m.content | trim) + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Takes the answer from behind the thought, and a reply without one isn't written at all.
NEEDS_THOUGHTS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{{ m.content.split('</think>')[1] if m.role == 'assistant' else m.content }}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

APPENDING = {
    "chatml": CHATML,
    "own system": OWN_SYSTEM,
    "drops thoughts": DROPS_THOUGHTS,
    "opens thoughts": OPENS_THOUGHTS,
    "channels": CHANNELS,
    "llama 2": LLAMA2,
    "alternating": ALTERNATING,
    "words": WORDS,
    "words alone": WORDS_ALONE,
    "dated": DATED,
}
REWRITING = {
    "system last": SYSTEM_LAST,
    "trims history": TRIMS_HISTORY,
    "needs thoughts": NEEDS_THOUGHTS,
}


@cache
def template_of(tokenizer: Tokenizer, source: str | None = None) -> ChatTemplate:
    """Compiled once; the tokenizer's own by default."""
    return ChatTemplate(tokenizer, source)


def encoder(tokenizer: Tokenizer, source: str | None = None) -> ChatEncoder:
    """One that remembers nothing yet."""
    return ChatEncoder(tokenizer, template_of(tokenizer, source))
