"""Certificates that stay good while a server runs: own ones renewed, given ones read again.

Now and then it looks whether a certificate of the keys' directory comes to its end, and makes a new
one; several servers may share the directory, so the lock of `pki` decides who does. And it looks
whether files hold something else than what is in use, by their content: what a peer has renewed,
and what somebody has given. New connections get what is new; open ones go on with what they have.

What cannot be used is not taken, such as a pair of which one half is written: the old stays, one
line in the log names the file, and the next look tries again.

Not here: when a certificate is old, and how one is made (`pki`, `certificates`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from cryptography import x509

from restow.apiserver import certificates as certs
from restow.apiserver.pki import Pki, PkiError, PkiOptions, check_mode, refresh_pki
from restow.apiserver.tls_options import TlsOptions
from restow.runtime import Runtime
from restow.serving.listener import NamedPair, TlsError, TlsFiles, TlsMaterial, TlsPolicy
from restow.serving.metrics import Metrics

LOOK_SECONDS: Final = 30.0
"""As often as files are read again; half of what the reference takes."""
FILE_BYTES_MAX: Final = 1024 * 1024

logger = logging.getLogger(__name__)

Refusal = (PkiError, TlsError, ValueError, OSError)


@dataclass(slots=True)
class _Followed:
    """Files, what they held when they were taken, and who takes them."""

    paths: tuple[Path, ...]
    take: Callable[[], None]
    taken: str


@dataclass(slots=True)
class Outcomes:
    """How often something new was found, and what became of it."""

    success: int = 0
    failure: int = 0
    last_error: dict[str, str] = field(default_factory=dict)
    """Of each thing that is looked at; not there while it is well."""


class Renewal:
    """Looks after the certificates of one process. `run` it; `look` is one step."""

    def __init__(
        self,
        pki: Pki,
        options: PkiOptions,
        runtime: Runtime,
        *,
        material: TlsMaterial | None = None,
    ) -> None:
        """`material`: what a listener shows; a process without one has keys only."""
        self.pki = pki
        self.listeners: list[Callable[[Pki], None]] = []
        """Told of new keys and authorities, on the event loop; they are short."""
        self.outcomes = Outcomes()
        self._options = options
        self._runtime = runtime
        self._material = material
        self._followed: list[_Followed] = []
        self._serving_end = _end_of(material)

    def follow(self, *paths: Path, take: Callable[[], None]) -> None:
        """Call `take` when one of these files holds something else.

        If it raises PkiError, TlsError, ValueError or OSError, it is called again at later looks.
        """
        self._followed.append(_Followed(paths, take, _content_of(paths)))

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._runtime.clock.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Renew what comes to its end, and use what is new."""
        found = await self._look_at_keys()
        is_shown = self._try("the serving certificate", self._look_at_material)
        if found is not None and is_shown:  # else clients would be told to trust what none sees
            self._take_keys(found)
        for each in self._followed:
            content = await asyncio.to_thread(_content_of, each.paths)
            if content != each.taken:
                self._try(", ".join(map(str, each.paths)), partial(_take, each, content))

    def publish(self, metrics: Metrics) -> None:
        """Show how long the certificate in use still holds, and what was renewed."""
        metrics.gauge(
            "restow_serving_certificate_expiration_seconds",
            "Seconds until the certificate that clients see expires; below 0: since it has.",
            (),
            lambda: [((), self._seconds_left())] if self._serving_end else [],
        )
        metrics.gauge(
            "restow_certificate_reloads_total",
            "Certificates and authorities that were found to have changed, by what became of it.",
            ("outcome",),
            lambda: [
                (("success",), self.outcomes.success),
                (("failure",), self.outcomes.failure),
            ],
        )

    async def _look_at_keys(self) -> Pki | None:
        """Keys that differ from those in use, if there are such."""
        directory = self.pki.directory
        try:
            found = await asyncio.to_thread(refresh_pki, directory, self._runtime, self._options)
        except Refusal as error:
            self._refuse("the keys of the cluster", error)
            return None
        if found is None:
            return None  # a peer has the lock, and the next look sees what it has made
        if found.fingerprint != self.pki.fingerprint:
            text = f"{found.directory} holds the keys of another cluster: put the old ones back"
            self._refuse("the keys of the cluster", PkiError(text))
            return None
        self.outcomes.last_error.pop("the keys of the cluster", None)
        return None if found == self.pki else found

    def _take_keys(self, found: Pki) -> None:
        self.pki = found
        self.outcomes.success += 1
        logger.info("certificates in %s were renewed", found.directory)
        for listener in tuple(self.listeners):
            try:
                listener(found)
            except Refusal as error:  # such as a full disk; the others still must know
                logger.warning("what was renewed could not be passed on: %s", error)

    def _look_at_material(self) -> bool:
        material = self._material
        if material is None or not material.reload_if_changed():
            return False
        self._serving_end = _end_of(material)
        logger.info("new connections get the certificate of %s", material.files.cert_file)
        return True

    def _try(self, what: str, step: Callable[[], bool]) -> bool:
        """Whether it is well, whatever there was to do."""
        try:
            is_new = step()
        except Refusal as error:
            self._refuse(what, error)
            return False
        self.outcomes.last_error.pop(what, None)
        self.outcomes.success += is_new
        return True

    def _refuse(self, what: str, error: Exception) -> None:
        """Say it once for as long as nothing else is wrong."""
        text = str(error)
        if self.outcomes.last_error.get(what) == text:
            return
        self.outcomes.last_error[what] = text
        self.outcomes.failure += 1
        logger.error("%s: what is new is not taken, and the old stays in use: %s", what, text)

    def _seconds_left(self) -> float:
        assert self._serving_end is not None
        return self._serving_end - self._runtime.clock.wall().timestamp()


def make_material(files: TlsFiles, options: TlsOptions) -> TlsMaterial:
    """What a listener shows. Raises TlsError or PkiError, which name the file."""
    named = []
    for each in options.named:
        check_mode(each.key_file)
        names = each.names or tuple(certs.names_of(_first_certificate(each.cert_file)))
        if not names:
            raise PkiError(f"{each.cert_file} has no names: give some, --tls-sni-cert-key C,K:NAME")
        named.append(NamedPair(cert_file=each.cert_file, key_file=each.key_file, names=names))
    policy = TlsPolicy(
        min_version=options.min_version,
        cipher_suites=options.cipher_suites,
        client_certificates=options.client_auth,
    )
    wanted = TlsFiles(
        cert_file=files.cert_file,
        key_file=files.key_file,
        client_ca_files=files.client_ca_files,
        named=tuple(named),
    )
    return TlsMaterial(wanted, policy)


def _take(followed: _Followed, content: str) -> bool:
    followed.take()
    followed.taken = content
    return True


def _end_of(material: TlsMaterial | None) -> float | None:
    if material is None:
        return None
    try:
        certificate = _first_certificate(material.files.cert_file)
    except PkiError:
        return None  # replaced since it was loaded; the next look sees it
    return certificate.not_valid_after_utc.timestamp()


def _first_certificate(path: Path) -> x509.Certificate:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PkiError(f"{path} cannot be read: {error.strerror}") from error
    return certs.load_certificate(path, content)


def _content_of(paths: Sequence[Path]) -> str:
    """What files hold, or why they cannot be read."""
    whole = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX)
        except OSError as error:
            content = f"unreadable: {error.errno}".encode()
        whole.update(hashlib.sha256(content).digest())
    return whole.hexdigest()
