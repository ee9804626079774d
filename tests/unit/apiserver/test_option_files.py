"""Files named by flags: each error names the flag and the file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.apiserver.authentication import Authenticators
from restow.apiserver.authentication_options import (
    AuthenticationOptions,
    OidcOptions,
    RequestHeaderOptions,
)
from restow.apiserver.certificate_reload import make_material
from restow.apiserver.certificates import PkiError
from restow.apiserver.pki import PkiOptions, ensure_pki, read_given
from restow.apiserver.service_account_options import ServiceAccountOptions
from restow.apiserver.service_accounts import account_rules
from restow.apiserver.startup_errors import REFUSALS
from restow.apiserver.tls_options import NamedCertificate, TlsOptions
from restow.audit import read_policy
from restow.storage.etcd.credentials import load_credentials
from restow.storage.etcd.options import EtcdOptions
from tests.support.certificates import CertificateFiles, make_certificate

Way = Callable[[Path, CertificateFiles], object]


def enter(options: AuthenticationOptions, token_auth_file: Path | None = None) -> None:
    asyncio.run(
        Authenticators.load(options, Runtime.system(), tokens={}, token_auth_file=token_auth_file)
    )


def accounts(path: Path, files: CertificateFiles) -> None:
    pki = ensure_pki(files.cert_file.parent / "pki", Runtime.system())
    account_rules(pki, ServiceAccountOptions(key_files=(path,)))


def etcd(**given: Path) -> None:
    options = EtcdOptions(endpoints=("h:1",), tls=True, **given)  # type: ignore[arg-type]
    load_credentials(options, datetime.now(UTC))


def named(path: Path, files: CertificateFiles) -> None:
    pki = ensure_pki(files.cert_file.parent / "pki", Runtime.system())
    given = NamedCertificate(cert_file=path, key_file=files.key_file)
    make_material(pki.tls_files(), TlsOptions(named=(given,)))


def serving(cert: Path, key: Path) -> None:
    read_given(PkiOptions(tls_cert_file=cert, tls_private_key_file=key))


def issuer(path: Path, _files: CertificateFiles) -> None:
    oidc = OidcOptions(issuer_url="https://issuer.example", client_id="restow", ca_file=path)
    enter(AuthenticationOptions(oidc=oidc))


def proxies(path: Path, _files: CertificateFiles) -> None:
    enter(AuthenticationOptions(request_header=RequestHeaderOptions(client_ca_file=path)))


WAYS: dict[str, Way] = {
    "--tls-cert-file": lambda path, files: serving(path, files.key_file),
    "--tls-private-key-file": lambda path, files: serving(files.cert_file, path),
    "--tls-sni-cert-key": named,
    "--client-ca-file": lambda path, _: read_given(PkiOptions(client_ca_file=path)),
    "--service-account-signing-key-file": lambda path, _: read_given(
        PkiOptions(service_account_signing_key_file=path)
    ),
    "--service-account-key-file": accounts,
    "--token-auth-file": lambda path, _: enter(AuthenticationOptions(), path),
    "--authentication-config": lambda path, _: enter(
        AuthenticationOptions(authentication_config=path)
    ),
    "--requestheader-client-ca-file": proxies,
    "--oidc-ca-file": issuer,
    "--audit-policy-file": lambda path, _: read_policy(path),
    "--etcd-cafile": lambda path, _: etcd(ca_file=path),
    "--etcd-certfile": lambda path, files: etcd(cert_file=path, key_file=files.key_file),
    "--etcd-keyfile": lambda path, files: etcd(cert_file=files.cert_file, key_file=path),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificate(tmp_path_factory.mktemp("given") / "a", name="a")


@pytest.mark.parametrize("flag", WAYS)
def test_a_refusal_names_the_flag(flag: str, tmp_path: Path, files: CertificateFiles) -> None:
    """A missing file, a directory, or invalid content; the library's own message is not used."""
    missing, pipe, nonsense = (tmp_path / name for name in ("missing", "pipe", "nonsense"))
    os.mkfifo(pipe, 0o600)
    nonsense.write_bytes(b"\xff\xfe some, thing\n")
    nonsense.chmod(0o600)
    for path in (missing, pipe, nonsense):
        with pytest.raises(REFUSALS) as refusal:
            WAYS[flag](path, files)
        text = str(refusal.value)
        assert text.startswith(flag)
        assert text.count(str(path)) == 1
        assert "http" not in text
        assert "Errno" not in text


SECRET_FLAGS = {"--tls-private-key-file", "--service-account-signing-key-file", "--token-auth-file"}
SECRET_FLAGS |= {"--etcd-keyfile"}


@pytest.mark.parametrize("flag", WAYS)
def test_a_file_that_others_may_write_is_refused(
    flag: str, tmp_path: Path, files: CertificateFiles
) -> None:
    """Whatever it contains, and whichever user may write it; and a secret that all may read."""
    path = tmp_path / "given"
    path.write_text("")
    for mode in (0o666, 0o620, 0o602, *((0o644,) if flag in SECRET_FLAGS else ())):
        path.chmod(mode)
        with pytest.raises(REFUSALS) as refusal:
            WAYS[flag](path, files)
        text = str(refusal.value)
        assert text.startswith(flag)
        assert f"mode {mode:o}" in text
        assert f"chmod 600 {path}" in text


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640])
def test_a_token_file_as_secrets_are_mounted(mode: int, tmp_path: Path) -> None:
    """One that a group may read, through a symlink of the own user, is accepted."""
    path, link = tmp_path / "tokens", tmp_path / "link"
    path.write_text("secret,ada,1\n")
    path.chmod(mode)
    link.symlink_to(path)
    enter(AuthenticationOptions(), link)


def test_a_pair_that_is_none(tmp_path: Path, files: CertificateFiles) -> None:
    """A key of another certificate is rejected by flag, and so is one flag without the other."""
    other = make_certificate(tmp_path / "b", name="b")
    with pytest.raises(PkiError, match=r"--tls-private-key-file: .* key values mismatch"):
        serving(files.cert_file, other.key_file)
    with pytest.raises(PkiError, match="must be given together"):
        read_given(PkiOptions(tls_cert_file=files.cert_file))
