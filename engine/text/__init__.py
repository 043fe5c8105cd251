"""Text as the model reads it: tokenizers, chat templates, and tokens as text while they arrive."""
