"""What the chat screen is made of: each draws one thing, posts messages, and decides nothing."""
