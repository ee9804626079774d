"""Checks of `restow doctor` on files: permissions of keys and kubeconfigs, expiry of certificates.

Not here: fetching the serving certificates of servers (`doctor_cluster`); they are checked here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from restow.apimachinery.certificates import Certificate, names_of, read_pem
from restow.cli.doctor_findings import OTHERS, Finding, error, ok, some, unseen, warning

EXPIRY_WARNED: Final = timedelta(days=30)
KEYS_FORBIDDEN: Final = 0o027
"""Forbidden modes of key files: no access for others, no write access for the group."""
CERTIFICATE_ENDS: Final = (".crt", ".pem")


def judge_data_dir(data_dir: Path, now: datetime) -> Iterator[Finding]:
    """Check the permissions and certificates of a data directory."""
    yield judge_modes("data directory", [data_dir], forbidden=OTHERS)
    pki = data_dir / "pki"
    if not pki.is_dir():
        yield unseen("keys", f"{pki} does not exist: keys and certificates were not checked")
    else:
        yield judge_modes("keys", [pki, *sorted(pki.iterdir())], forbidden=KEYS_FORBIDDEN)
        for file in sorted(pki.iterdir()):
            if file.suffix in CERTIFICATE_ENDS:
                yield from _judge_file(file, now)
    kubeconfig = data_dir / "kubeconfig"
    if kubeconfig.exists():
        yield judge_modes("kubeconfig", [kubeconfig], forbidden=OTHERS)


def judge_modes(check: str, paths: list[Path], *, forbidden: int) -> Finding:
    """Check that no other user can read or change private files."""
    wrong: list[Path] = []
    try:
        for path in paths:
            mode = path.stat().st_mode & 0o777
            if mode & forbidden and not (path.suffix in CERTIFICATE_ENDS and not mode & 0o022):
                wrong.append(path)
    except OSError as problem:
        return unseen(check, f"{problem.filename} cannot be accessed: {problem.strerror}")
    if wrong:
        names = " ".join(str(path) for path in wrong[:8])
        return error(
            check,
            f"other users can read or change {some([str(path) for path in wrong])}",
            f"chmod go= {names}; replace the keys if others could have read them",
        )
    return ok(check, f"only their owner can read {paths[0]}")


def _judge_file(path: Path, now: datetime) -> Iterator[Finding]:
    try:
        data = path.read_bytes()
    except OSError as problem:
        yield unseen("certificate", f"{path} cannot be read: {problem.strerror}")
        return
    yield from judge_pem(str(path), data, now)


def judge_pem(name: str, data: bytes, now: datetime) -> Iterator[Finding]:
    """Check all certificates of a PEM text."""
    try:
        found = read_pem(data)
    except ValueError:
        yield error("certificate", f"{name} holds no certificate in PEM form", "create it again")
        return
    for certificate in found:
        yield judge_certificate(name, certificate, now)


def judge_certificate(name: str, certificate: Certificate, now: datetime) -> Finding:
    """Check the validity period of a certificate."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    check, days = "certificate", (end - now).days
    if now < begin:
        return error(
            check,
            f"{name} is not valid before {begin:%Y-%m-%d %H:%M} UTC",
            "correct the clock of this machine, or wait",
        )
    if now > end:
        return error(check, f"{name} expired on {end:%Y-%m-%d}", _renewal(certificate))
    if end - now < EXPIRY_WARNED:
        return warning(check, f"{name} expires in {days} days", _renewal(certificate))
    names = names_of(certificate)
    text = f"{name} is valid until {end:%Y-%m-%d}"
    return ok(check, f"{text}, for {some(names)}" if names else text)


def judge_names(name: str, certificate: Certificate, host: str) -> Finding | None:
    """Check that a serving certificate is valid for the address that was used."""
    names = names_of(certificate)
    if host in names or any(_is_wildcard_of(each, host) for each in names):
        return None
    return error(
        "certificate",
        f"{name} is not valid for {host}, only for {some(names) or 'no name at all'}",
        "start the server with --bind for that address, or with a certificate for that name",
    )


def canonical_host(host: str) -> str:
    """An address as it is written in certificates."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def _is_wildcard_of(name: str, host: str) -> bool:
    return name.startswith("*.") and host.partition(".")[2] == name[2:]


def _renewal(certificate: Certificate) -> str:
    if certificate.subject == certificate.issuer:
        return "it is a CA: create new keys for the cluster, and distribute the CA to all clients"
    return "a server renews its own certificate at start: restart it; otherwise issue a new one"
