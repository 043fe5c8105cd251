"""The engine for other programs: OpenAI's API, and one of ours for a second process of the same person."""
