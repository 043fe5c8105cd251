"""Numbers of things, in words."""


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 chat`, `1,204 chats`, `2 replies`; `things` is the plural where no "s" makes it."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {things or thing + 's'}"
