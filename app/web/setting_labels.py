"""What the settings are called on the page, by the names that SamplingParams has for them."""

from __future__ import annotations

SETTING_LABELS = {
    "temperature": "Temperature",
    "n": "Replies side by side",
    "max_tokens": "Longest reply, in tokens",
    "seed": "Seed",
    "top_p": "Top p",
    "top_k": "Top k",
    "min_p": "Min p",
    "repetition_penalty": "Repetition penalty",
    "presence_penalty": "Presence penalty",
    "frequency_penalty": "Frequency penalty",
    "stop": "Stop texts",
    "logprobs": "Alternatives kept for each token",
    "beam_width": "Beam search",
    "length_penalty": "Length penalty",
    "early_stopping": "Beam search ends",
}
QUOTED_LABELS = {name: f"“{label}”" for name, label in SETTING_LABELS.items()}
"""As they stand in a sentence."""
