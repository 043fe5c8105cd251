"""The chats in a terminal."""
