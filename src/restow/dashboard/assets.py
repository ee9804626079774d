"""The static files of the dashboard, with their HTTP headers.

They are read once and served from memory by the names found then, so a requested path can never
name another file. There are no templates, so no response depends on data. Not here: authorization;
the page has no data and is public, and data comes from the API.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

INDEX: Final = "index.html"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Files of other types are not served."""

_DIRECTIVES: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    # The browser rejects every conversion of text to markup by a script.
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
POLICY: Final = "; ".join(_DIRECTIVES)
"""Only content of this server: nothing inline, nothing cross-origin, and no embedding in frames."""

SECURITY_LINES: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
CACHE_LINE: Final = ("Cache-Control", "no-cache")
"""Browsers must revalidate: an upgraded server has other files."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file and its headers."""

    body: bytes
    content_type: str
    etag: str
    """A hash of the bytes: equal on all servers of one release."""

    def lines(self) -> tuple[tuple[str, str], ...]:
        """The headers of a response with or without the body."""
        return (
            ("Content-Type", self.content_type),
            ("ETag", self.etag),
            CACHE_LINE,
            *SECURITY_LINES,
        )

    def is_known_to(self, if_none_match: str | None) -> bool:
        """Whether the client's If-None-Match contains this ETag."""
        if if_none_match is None:
            return False
        known = [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
        return self.etag in known or "*" in known


def load_assets() -> Mapping[str, Asset]:
    """All files by their path below the folder, such as `js/main.js`."""
    return dict(_walk(files("restow.dashboard") / "static", ""))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    for each in sorted(folder.iterdir(), key=lambda found: found.name):
        if each.is_dir():
            yield from _walk(each, f"{prefix}{each.name}/")
            continue
        content_type = TYPES.get("." + each.name.rpartition(".")[2])
        if content_type is not None:
            body = each.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            yield prefix + each.name, Asset(body, content_type, etag)
