"""Speculative decoding by prompt lookup: tokens that are guessed from the text itself, and verified in one step."""
