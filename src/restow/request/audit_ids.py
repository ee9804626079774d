"""Audit ids: one for each request, said in its answer and in all that is written down of it.

A client may bring its own, to find its requests in the log again. Otherwise it is a UUID of a
server's own making: chance once per server, then a number. That costs a tenth of chance each time,
and an id is no secret.

Not here: what is written down.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

from restow.aio import Ids
from restow.httpserver.request import HttpRequest

HEADER: Final = "audit-id"
ID_LENGTH_MAX: Final = 64
TURNS_MAX: Final = 16**9
"""Times 4096: ids with the same chance in them."""

_LINE: Final = b"Audit-Id: "
_LINE_END: Final = b"\r\n"
_ENDS_COUNT: Final = 16**3
_ENDS: Final = tuple(b"%03x\r\n" % number for number in range(_ENDS_COUNT))
# What can end no line and no text, wherever it is shown.
_PRINTABLE: Final = re.compile(r"[!-~]+")


class AuditIds:
    """Gives out ids, as finished header lines."""

    __slots__ = ("_begin", "_chance", "_count", "_ids", "_turns")

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._chance = b""
        self._begin = b""
        self._turns = TURNS_MAX
        self._count = 0
        self._new_prefix()

    def _new_prefix(self) -> None:
        """The next ids begin alike: only their last digits are made for each."""
        if self._turns >= TURNS_MAX:
            uid = self._ids.uid()
            # Version 8: made in a way of one's own.
            self._chance, self._turns = f"{uid[:14]}8{uid[15:24]}".encode(), 0
        self._begin = b"%b%b%09x" % (_LINE, self._chance, self._turns)
        self._turns += 1
        self._count = 0

    def line(self) -> bytes:
        """The header line of a new id."""
        count = self._count
        if count >= _ENDS_COUNT:
            self._new_prefix()
            count = 0
        self._count = count + 1
        return self._begin + _ENDS[count]

    def line_for(self, request: HttpRequest) -> bytes:
        """The header line of a request's id: the client's own, if it has one that is fit."""
        said = request.headers.get(HEADER)
        if said is not None:
            said = said[:ID_LENGTH_MAX]
            if _PRINTABLE.fullmatch(said) is not None:
                return b"%b%b\r\n" % (_LINE, said.encode())
        return self.line()


def id_in(line: bytes) -> bytes:
    """The id in a header line; nothing for no line."""
    return line[len(_LINE) : -len(_LINE_END)]


def quoted_line(line: bytes) -> bytes:
    """The line with its id as it stands in a JSON text, without quotation marks."""
    if b'"' in line or b"\\" in line:
        return b"%b%b%b" % (_LINE, orjson.dumps(id_in(line).decode())[1:-1], _LINE_END)
    return line
