"""The doctor's look at files: who may read keys and kubeconfigs, and how long certificates hold.

Not here: certificates that a server shows on the wire are fetched in `doctor_cluster`, and judged
here.
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
"""For keys of a cluster: nothing for others, no writing for the group."""
CERTIFICATE_ENDS: Final = (".crt", ".pem")


def judge_data_dir(data_dir: Path, now: datetime) -> Iterator[Finding]:
    """Permissions and certificates of a cluster's own files."""
    yield judge_modes("data directory", [data_dir], forbidden=OTHERS)
    pki = data_dir / "pki"
    if not pki.is_dir():
        yield unseen("keys", f"{pki} is not there: keys and certificates could not be looked at")
    else:
        yield judge_modes("keys", [pki, *sorted(pki.iterdir())], forbidden=KEYS_FORBIDDEN)
        for file in sorted(pki.iterdir()):
            if file.suffix in CERTIFICATE_ENDS:
                yield from _judge_file(file, now)
    kubeconfig = data_dir / "kubeconfig"
    if kubeconfig.exists():
        yield judge_modes("kubeconfig", [kubeconfig], forbidden=OTHERS)


def judge_modes(check: str, paths: list[Path], *, forbidden: int) -> Finding:
    """Whether other users can read, or change, what only one may."""
    wrong: list[Path] = []
    try:
        for path in paths:
            mode = path.stat().st_mode & 0o777
            if mode & forbidden and not (path.suffix in CERTIFICATE_ENDS and not mode & 0o022):
                wrong.append(path)
    except OSError as problem:
        return unseen(check, f"{problem.filename} cannot be looked at: {problem.strerror}")
    if wrong:
        names = " ".join(str(path) for path in wrong[:8])
        return error(
            check,
            f"other users can read or change {some([str(path) for path in wrong])}",
            f"chmod go= {names}, and make new keys if others may have read them",
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
    """All certificates of a text."""
    try:
        found = read_pem(data)
    except ValueError:
        yield error("certificate", f"{name} holds no certificate in PEM form", "make it anew")
        return
    for certificate in found:
        yield judge_certificate(name, certificate, now)


def judge_certificate(name: str, certificate: Certificate, now: datetime) -> Finding:
    """How long it still holds."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    check, days = "certificate", (end - now).days
    if now < begin:
        return error(
            check,
            f"{name} holds only from {begin:%Y-%m-%d %H:%M} UTC on",
            "set the clock of this machine, or wait",
        )
    if now > end:
        return error(check, f"{name} has expired on {end:%Y-%m-%d}", _renewal(certificate))
    if end - now < EXPIRY_WARNED:
        return warning(check, f"{name} expires in {days} days", _renewal(certificate))
    names = names_of(certificate)
    text = f"{name} holds until {end:%Y-%m-%d}"
    return ok(check, f"{text}, for {some(names)}" if names else text)


def judge_names(name: str, certificate: Certificate, host: str) -> Finding | None:
    """Whether a server's certificate is for the address at which it was reached."""
    names = names_of(certificate)
    if host in names or any(_is_wildcard_of(each, host) for each in names):
        return None
    return error(
        "certificate",
        f"{name} is not for {host}, but for {some(names) or 'no name at all'}",
        "start the server with --bind of that address, or give it a certificate with that name",
    )


def canonical_host(host: str) -> str:
    """An address as certificates have it."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def _is_wildcard_of(name: str, host: str) -> bool:
    return name.startswith("*.") and host.partition(".")[2] == name[2:]


def _renewal(certificate: Certificate) -> str:
    if certificate.subject == certificate.issuer:
        return "it is an authority: make new keys for the cluster, and give them to all clients"
    return "a server renews its own when it is started: restart it; others: make a new one"
