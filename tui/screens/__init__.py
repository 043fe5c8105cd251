"""The one screen on which people chat, part by part, and what opens above it."""
