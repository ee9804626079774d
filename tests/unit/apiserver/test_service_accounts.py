"""Options of service accounts, and the keys that are accepted with them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from restow.aio import Runtime
from restow.apimachinery.jwt import read
from restow.apiserver.pki import PkiError, PkiOptions, ensure_pki
from restow.apiserver.service_account_options import ISSUER_DEFAULT, ServiceAccountOptions
from restow.apiserver.service_accounts import account_rules
from restow.cli.serve_service_accounts import add_service_accounts, service_account_options


def options_of(*words: str) -> ServiceAccountOptions:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_service_accounts(parser)
    return service_account_options(parser.parse_args(words))


def test_flags() -> None:
    """The flags are those of kube-apiserver, and may be repeated where those may."""
    assert options_of() == ServiceAccountOptions()
    options = options_of(
        *("--service-account-issuer", "https://a", "--service-account-issuer", "https://b"),
        *("--api-audiences", "x,y", "--api-audiences", "z"),
        *("--service-account-key-file", "k1", "--service-account-key-file", "k2"),
        *("--service-account-max-token-expiration", "7200"),
        "--service-account-extend-token-expiration",
    )
    assert options.issuers == ("https://a", "https://b")
    assert options.audiences == ("x", "y", "z")
    assert options.key_files == (Path("k1"), Path("k2"))
    assert options.token_seconds_max == 7200
    assert options.extend_token_expiration
    assert ServiceAccountOptions().audiences == (ISSUER_DEFAULT,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuers": ()},
        {"issuers": ("",)},
        {"issuers": ("a", "a")},
        {"issuers": ("://x",)},
        {"issuers": tuple(map(str, range(100)))},
        {"api_audiences": ("a", "")},
        {"jwks_uri": "http://a"},
        {"token_seconds_max": 3599.0},
        {"token_seconds_max": 2.0**33},
    ],
)
def test_options_that_cannot_work(wrong: dict[str, Any]) -> None:
    """Invalid options are rejected by the name of their flag."""
    with pytest.raises(ValueError, match="--"):
        ServiceAccountOptions(**wrong)


def test_keys_change(tmp_path: Path) -> None:
    """A former signing key is accepted as long as its file is given; the new one signs."""
    directory, new_file = tmp_path / "pki", tmp_path / "new.pem"
    before = account_rules(ensure_pki(directory, Runtime.system()), ServiceAccountOptions())
    key = ec.generate_private_key(ec.SECP384R1())
    new_file.touch(mode=0o600)
    new_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    requested = PkiOptions(service_account_signing_key_file=new_file)
    pki = ensure_pki(directory, Runtime.system(), requested)
    old_file = directory / "service-account.key"
    after = account_rules(pki, ServiceAccountOptions(key_files=(old_file,)))
    token = read(before.trust.signing.sign({"iss": ISSUER_DEFAULT}))
    after.trust.keys.check(token)
    assert after.trust.signing.public.algorithm == "ES384"
    assert len(after.trust.keys.keys) == 2
    assert len(account_rules(pki, ServiceAccountOptions()).trust.keys.keys) == 1


def test_files_that_are_no_keys(tmp_path: Path) -> None:
    """An unreadable key file is named."""
    pki = ensure_pki(tmp_path / "pki", Runtime.system())
    for path in (tmp_path / "missing", pki.directory / "admin.token"):
        with pytest.raises(PkiError, match=path.name):
            account_rules(pki, ServiceAccountOptions(key_files=(path,)))
    assert "PRIVATE" not in repr(account_rules(pki, ServiceAccountOptions()))
