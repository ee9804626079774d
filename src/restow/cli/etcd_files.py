"""The TLS flags for etcd, which are the same in every command with a store.

They are added to the store's address as parameters; only the address is passed on and stored. Not
here: the use of the files (`restow.storage.etcd`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final
from urllib.parse import quote

from restow.storage import plain_etcd
from restow.storage.errors import OpenRefused

_FLAGS: Final = (
    ("ca", "etcd_cafile", "--etcd-cafile"),
    ("cert", "etcd_certfile", "--etcd-certfile"),
    ("key", "etcd_keyfile", "--etcd-keyfile"),
)
ABOUT: Final = """\
For a store at etcds://HOST:PORT. The files are reloaded when they change.
"""


def add_etcd_files(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("etcd over TLS", ABOUT).add_argument
    add(
        "--etcd-cafile",
        type=Path,
        metavar="FILE",
        help="CA certificates that verify etcd; default: those of the operating system",
    )
    add("--etcd-certfile", type=Path, metavar="FILE", help="client certificate for etcd")
    add(
        "--etcd-keyfile",
        type=Path,
        metavar="FILE",
        help="private key of the client certificate; must not be readable by others",
    )
    add(
        plain_etcd.FLAG,
        action="store_true",
        help="allow etcd:// (without TLS) to other machines: others on the network can read and"
        " change everything that is stored",
    )


def given_etcd_files(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The flags of these files with their values, as given."""
    found = ((flag, getattr(arguments, field, None)) for _, field, flag in _FLAGS)
    words = [word for flag, path in found if path is not None for word in (flag, str(path))]
    is_insecure = getattr(arguments, "etcd_insecure", False)
    return (*words, *([plain_etcd.FLAG] if is_insecure else ()))


def with_etcd_files(address: str, arguments: argparse.Namespace) -> str:
    """The address with the given flags added. Raises `OpenRefused` if they do not fit it, or if it
    needs `--etcd-insecure`."""
    if arguments.etcd_insecure:
        if not plain_etcd.is_plain(address):
            shown = address or "the store in the data directory"
            raise OpenRefused(
                f"{plain_etcd.FLAG}: only for a store at etcd://HOST:PORT, not for {shown}"
            )
        address = plain_etcd.accept(address)
    given = {
        name: getattr(arguments, field)
        for name, field, _ in _FLAGS
        if getattr(arguments, field) is not None
    }
    if not given:
        if (problem := plain_etcd.problem_of(address)) is not None:
            raise OpenRefused(problem)
        return address
    flags = ", ".join(flag for name, _, flag in _FLAGS if name in given)
    if not address.startswith("etcds://"):
        shown = address or "the store in the data directory"
        raise OpenRefused(f"{flags}: only for a store at etcds://HOST:PORT, not for {shown}")
    if ("cert" in given) != ("key" in given):
        raise OpenRefused("--etcd-certfile and --etcd-keyfile must be given together")
    place, _, query = address.partition("?")
    parts = [part for part in query.split("&") if part]
    for name, _, flag in _FLAGS:
        if name in given and any(part.startswith(f"{name}=") for part in parts):
            raise OpenRefused(f"{flag}: the store address already contains this file")
    parts += [f"{name}={quote(str(path.absolute()))}" for name, path in given.items()]
    return f"{place}?{'&'.join(parts)}"
