"""Bringing chats and taking them away: one file for each format; writers are given chats, readers find the format."""

from .markdown import write_markdown
from .own_json import write_json
from .reader import ReadChats, read_file, read_stream

__all__ = ["ReadChats", "read_file", "read_stream", "write_json", "write_markdown"]
