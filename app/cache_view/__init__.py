"""The pool of blocks as both screens draw it."""
