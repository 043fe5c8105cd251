"""The tokens of a reply as both screens show them."""
