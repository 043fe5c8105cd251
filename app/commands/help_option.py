"""How every command is asked for its help."""

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
"""For a command's `context_settings`."""
