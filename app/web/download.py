"""Text that leaves the page as a file."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Response

MEDIA_TYPES = {"md": "text/markdown; charset=utf-8", "json": "application/json", "csv": "text/csv; charset=utf-8"}


def download(text: str, name: str, form: str) -> Response:
    """For the browser to keep as `name.form`; `form` is one of MEDIA_TYPES."""
    file_name = quote(f"{name}.{form}", safe="")
    return Response(
        text.encode(),
        media_type=MEDIA_TYPES[form],
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{file_name}"},
    )
