"""The files of the dashboard, and what a browser is told about them.

They are read once, and served from memory under the names found then: a path that a request makes
up is at most a name that is not there. No template is filled in, so no answer depends on data.
Not here: who may see what; a page without data is for everybody, and data comes from the API.
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
"""What is of no such type is not served."""

_DIRECTIVES: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    # Text never becomes markup: the browser itself refuses, whatever a script may try.
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
POLICY: Final = "; ".join(_DIRECTIVES)
"""Everything from this server, nothing inline, nothing from elsewhere, in nobody's frame."""

SECURITY_LINES: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
CACHE_LINE: Final = ("Cache-Control", "no-cache")
"""Ask each time whether it is still good: an upgraded server has other files."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file, as it is sent."""

    body: bytes
    content_type: str
    etag: str
    """Changes with the bytes, and only with them; equal on all servers of one release."""

    def lines(self) -> tuple[tuple[str, str], ...]:
        """The header lines of an answer with or without the bytes."""
        return (
            ("Content-Type", self.content_type),
            ("ETag", self.etag),
            CACHE_LINE,
            *SECURITY_LINES,
        )

    def is_known_to(self, if_none_match: str | None) -> bool:
        """Whether a client has it already, by what it says it has."""
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
