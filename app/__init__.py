"""People, their chats, where these are kept, and what serves them: the command line, the page, the API."""
