"""How a chat becomes token ids, and what of it is sent where it is longer than the model's window."""
