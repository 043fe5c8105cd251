"""What a model writes in Markdown, as lines of a terminal."""
