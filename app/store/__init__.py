"""Where chats are kept: one SQLite file, one door to it (`store.Store`), and the tables behind it."""
