"""Models: found, read, made ready for this machine, and run."""
