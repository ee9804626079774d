"""The secure defaults of SECURITY.md are those of `restow serve`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from restow.apimachinery.cipher_suites import CIPHER_SUITES
from restow.cli.main import make_whole_parser
from restow.httpserver.tls import TlsPolicy
from tools.command_tree import Option, whole_tree

PAGE: Final = Path(__file__).parents[2] / "SECURITY.md"
NOTHING: Final = frozenset({"none", "off"})
UNSET: Final = frozenset({"", "none", "false", "–", "no limit", "no audit log"})
SUITES_WITH_TLS_12: Final = 6


def documented() -> Iterator[tuple[str, str]]:
    """Each flag of the table, with its default."""
    section = PAGE.read_text(encoding="utf-8").partition("## Secure defaults")[2]
    table = section.partition("| option |")[2].partition("\n\n")[0]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        flags = re.findall(r"`(--[a-z-]+)`", cells[0])
        defaults = cells[1].split(";")[0].replace("`", "").split(", ") if flags else []
        for number, flag in enumerate(flags):
            yield flag, defaults[number if len(defaults) == len(flags) else 0]


def serve_options() -> dict[str, Option]:
    tree = whole_tree(make_whole_parser())
    (serve,) = (each for each in tree.children if each.words[-1] == "serve")
    return {name: option for option in serve.options for name in option.names}


DOCUMENTED: Final = dict(documented())


def test_the_table_is_read() -> None:
    """The page has the defaults of many flags."""
    assert len(DOCUMENTED) > 15


@pytest.mark.parametrize("flag", DOCUMENTED)
def test_a_default_is_the_documented_one(flag: str) -> None:
    """Each flag of the table exists, and has this default."""
    option, text = serve_options()[flag], DOCUMENTED[flag]
    if flag == "--tls-cipher-suites":
        assert text.startswith("six with ECDHE")
    elif text in NOTHING:
        assert option.default.lower() in UNSET
    else:
        assert option.default == text


def test_the_default_suites_have_authenticated_encryption() -> None:
    """Without a choice, TLS 1.2 has the six suites with ECDHE that are listed."""
    assert TlsPolicy().cipher_suites == ()
    suites = [name for name, of_openssl in CIPHER_SUITES.items() if of_openssl]
    assert len(suites) == SUITES_WITH_TLS_12
    assert all("ECDHE" in name and ("GCM" in name or "CHACHA20" in name) for name in suites)
