"""Ask one or more questions and print the replies."""

import typer

app = typer.Typer(add_completion=False)


@app.command()
def ask() -> None: ...
