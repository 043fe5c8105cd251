"""One module for each subcommand; the entry-point group `paged_chat.commands` names them."""
