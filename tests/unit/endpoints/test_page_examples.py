"""Example files on the security pages: servers accept them as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from restow.audit import parse_policy
from restow.authentication.oidc_config import read_config

PAGES: Final = Path(__file__).parents[3] / "docs" / "how-to"


def example(page: str) -> str:
    text = (PAGES / page).read_text()
    (found,) = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_issuer_of_the_page() -> None:
    """The configuration of an issuer, with a rule, mappings and conditions, is accepted."""
    config = read_config(example("authenticate.md").encode())
    assert [each.issuer.url for each in config.issuers] == ["https://issuer.example.org"]


def test_the_audit_policy_of_the_page() -> None:
    """The audit policy is accepted, rule by rule."""
    assert len(parse_policy(example("audit-log.md").encode()).rules) == 3
