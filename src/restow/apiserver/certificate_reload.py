"""Renews the cluster's own certificates, and reloads files of certificates that have changed.

Each check renews certificates in the keys' directory that expire soon; several servers may share
the directory, so the lock of `pki` decides which one renews. It also compares the content of all
files with what is in use, to find certificates that a peer has renewed or an operator has
replaced. New connections use the new certificates; open ones keep theirs.

Files that belong together are validated together, and independently of all others: a certificate
with its key, and each CA file. A file is rejected if the server would not start with it, or if it
has expired while the one in use has not: the old content stays in use, one log message names the
file, and the next check tries again. Other files are not affected: a revoked CA must go, even if
another file is invalid.

Not here: when a certificate is renewed, and how it is issued (`pki`, `certificates`).
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from restow.aio import Runtime, in_own_thread, read_regular_file
from restow.aio.events import EventChannel
from restow.apiserver import certificates as certs
from restow.apiserver.option_files import check_authorities, named
from restow.apiserver.pki import Pki, PkiError, PkiOptions, check_mode, refresh_pki
from restow.apiserver.tls_options import TlsOptions
from restow.httpserver import (
    NamedPair,
    TlsError,
    TlsFiles,
    TlsMaterial,
    TlsPart,
    TlsPolicy,
    check_pair,
)
from restow.request.metrics import Metrics

CHECK_SECONDS: Final = 30.0
"""Interval at which files are read; half of that of kube-apiserver."""
SLOW_SECONDS: Final = 20.0
"""After this time a log message reports slow reading; nothing is renewed meanwhile."""
FILE_BYTES_MAX: Final = 1024 * 1024
OWN_KEYS: Final = "the cluster's keys"

logger = logging.getLogger(__name__)

Refusal = (PkiError, TlsError, ValueError, OSError)
Read = tuple[bytes, ...] | Exception
"""The content of some files, or why they cannot be used."""

T = TypeVar("T")


@dataclass(slots=True)
class _FollowedFiles:
    """Files, the content that is in use, and the callback that applies a new one."""

    paths: tuple[Path, ...]
    take: Callable[[], None]
    taken: str


@dataclass(slots=True)
class ReloadCounts:
    """Counts of reloads by result."""

    success: int = 0
    failure: int = 0
    last_error: dict[str, str] = field(default_factory=dict)
    """The last error, by file or name; no entry while the last check succeeded."""


class CertificateReload:
    """Renews and reloads the certificates of one process. `run` it; `check_once` is one step."""

    def __init__(
        self,
        pki: Pki,
        options: PkiOptions,
        runtime: Runtime,
        *,
        material: TlsMaterial | None = None,
    ) -> None:
        """`material`: that of the listener; None in a process that has keys but no listener."""
        self.pki = pki
        self.changed: EventChannel[[Pki]] = EventChannel()
        """Called with new keys and CAs, on the event loop; they must be short."""
        self.outcomes = ReloadCounts()
        self._options = options
        self._runtime = runtime
        self._material = material
        self._followed: list[_FollowedFiles] = []
        self._published_authorities = (
            {} if material is not None else _published_authorities(pki, options)
        )
        """The CAs published last, by file, in a process without a listener."""
        self._serving_end = self._find_end()

    def follow(self, *paths: Path, take: Callable[[], None]) -> None:
        """Call `take` when the content of one of these files changes.

        If it raises PkiError, TlsError, ValueError or OSError, later checks call it again.
        """
        self._followed.append(_FollowedFiles(paths, take, _content_of(paths)))

    async def run(self) -> None:
        """Check periodically, forever."""
        while True:
            await self._runtime.clock.sleep(CHECK_SECONDS)
            await self.check_once()

    async def check_once(self) -> None:
        """Renew certificates that expire soon, and apply files that have changed."""
        found = await self._read_changed_keys()
        apart = {path for each in self._followed for path in each.paths}
        parts = [part for part in self._parts() if apart.isdisjoint(part.paths)]
        is_shown = True
        for part, read in (await self._read_in_thread(partial(_read_all, parts))).items():
            is_well = self._try(part_name(part), partial(self._apply_part, part, read))
            is_shown &= is_well or not self._is_own(part)
        if found is not None and is_shown:  # do not publish a CA that is not in use
            self._take_keys(found)
        for each in self._followed:
            content = await self._read_in_thread(partial(_content_of, each.paths))
            what = ", ".join(map(str, each.paths))
            if content != each.taken:
                self._try(what, partial(self._take, each, content))
            else:  # an earlier problem is solved
                self.outcomes.last_error.pop(what, None)

    async def _read_in_thread(self, work: Callable[[], T]) -> T:
        """Read files in a thread of its own: a file system may never respond."""
        slow = self._runtime.clock.call_later(SLOW_SECONDS, _log_slow)
        try:
            return await in_own_thread("certificates", work)
        finally:
            slow.cancel()

    def publish(self, metrics: Metrics) -> None:
        """Export the time until the certificate in use expires, and the counts of reloads."""
        metrics.gauge(
            "restow_serving_certificate_expiration_seconds",
            "Seconds until the serving certificate expires; negative once it has expired.",
            (),
            lambda: [((), self._seconds_left())] if self._serving_end else [],
        )
        metrics.counter(
            "restow_certificate_reloads_total",
            "Reloads of changed certificates and CAs, by result.",
            ("outcome",),
            lambda: [
                (("success",), self.outcomes.success),
                (("failure",), self.outcomes.failure),
            ],
        )

    async def _read_changed_keys(self) -> Pki | None:
        """The keys on disk if they differ from those in use."""
        try:
            refresh = partial(refresh_pki, self.pki, self._runtime, self._options)
            found = await self._read_in_thread(refresh)
        except Refusal as error:
            self._refuse(OWN_KEYS, error)
            return None
        if found is None:
            return None  # a peer holds the lock; the next check finds its result
        if found.fingerprint != self.pki.fingerprint:
            text = f"{found.directory} contains the keys of another cluster: restore the old ones"
            self._refuse(OWN_KEYS, PkiError(text))
            return None
        self.outcomes.last_error.pop(OWN_KEYS, None)
        return None if found == self.pki else found

    def _take_keys(self, found: Pki) -> None:
        self.outcomes.success += 1
        logger.info("renewed the certificates in %s", found.directory)
        self._notify(replace(found, given=self.pki.given))

    def _notify(self, pki: Pki) -> None:
        self.pki = pki
        for listener in self.changed:
            try:
                listener(pki)
            except (
                Refusal
            ) as error:  # such as a full disk; the other subscribers get them all the same
                logger.warning("cannot publish the renewed certificates: %s", error)

    def _parts(self) -> Sequence[TlsPart]:
        return (
            tuple(self._published_authorities) if self._material is None else self._material.parts
        )

    def _in_use(self, part: TlsPart) -> tuple[bytes, ...]:
        return (
            self._published_authorities[part]
            if self._material is None
            else self._material.in_use(part)
        )

    def _is_own(self, part: TlsPart) -> bool:
        return all(path.parent == self.pki.directory for path in part.paths)

    def _apply_part(self, part: TlsPart, read: Read) -> bool:
        """Apply the content of some files; returns whether it is new. Raises one of Refusal."""
        if isinstance(read, Exception):
            raise read
        if read == self._in_use(part):
            return False
        late = self._time_problem(part, read)
        if self._material is None:
            self._published_authorities[part] = read
        else:
            self._material.take({part: read})
        self._serving_end = self._find_end()
        if late is not None:
            logger.error(
                "%s %s, as did the certificate in use: loaded it anyway", part.paths[0], late
            )
        logger.info("new connections use %s as of now", part_name(part))
        options, given = self._options, self.pki.given
        if part.paths[0] == options.tls_cert_file:
            given = replace(given, serving_cert_pem=read[0])
        elif part.paths == (options.client_ca_file,):
            given = replace(given, client_ca_pem=read[0])
        if given != self.pki.given:
            self._notify(replace(self.pki, given=given))
        return True

    def _time_problem(self, part: TlsPart, read: tuple[bytes, ...]) -> str | None:
        """The reason why a new certificate is not valid now, if the one in use is not either.

        Raises PkiError if the one in use is still valid."""
        if not part.is_pair:
            return None
        path, now = part.paths[0], self._runtime.clock.wall()
        problem = certs.time_problem(certs.load_certificate(path, read[0]), now)
        current = certs.load_certificate(path, self._in_use(part)[0])
        if problem is not None and certs.time_problem(current, now) is None:
            raise PkiError(f"{path} {problem}, and the certificate in use is still valid")
        return problem

    def _take(self, followed: _FollowedFiles, content: str) -> bool:
        """Run the callback of a followed file, then apply the file to TLS if TLS uses it."""
        followed.take()
        for part in self._parts():
            if set(part.paths) <= set(followed.paths):
                self._apply_part(part, _read_part(part))
        followed.taken = content
        return True

    def _find_end(self) -> float | None:
        """Expiry time of the certificate in use."""
        if self._material is None:
            return None
        pem = self._material.in_use(self._material.parts[0])[0]
        certificate = certs.load_certificate(self._material.files.cert_file, pem)
        return certificate.not_valid_after_utc.timestamp()

    def _try(self, what: str, step: Callable[[], bool]) -> bool:
        """Run a step and record its result; returns whether it succeeded."""
        try:
            is_new = step()
        except Refusal as error:
            self._refuse(what, error)
            return False
        self.outcomes.last_error.pop(what, None)
        self.outcomes.success += is_new
        return True

    def _refuse(self, what: str, error: Exception) -> None:
        """Log and count an error once, until the error changes."""
        text = str(error)
        if self.outcomes.last_error.get(what) == text:
            return
        self.outcomes.last_error[what] = text
        self.outcomes.failure += 1
        logger.error("%s: not reloaded, the previous content stays in use: %s", what, text)

    def _seconds_left(self) -> float:
        assert self._serving_end is not None
        return self._serving_end - self._runtime.clock.wall().timestamp()


def make_material(files: TlsFiles, options: TlsOptions) -> TlsMaterial:
    """The TLS material of a listener. Raises TlsError or PkiError that name the file."""
    pairs = []
    flag = "--tls-sni-cert-key"
    for each in options.named:
        with named(flag, each.cert_file):
            check_mode(each.key_file)
            part = TlsPart((each.cert_file, each.key_file))
            check_pair(part)
            certificate = certs.load_certificate(each.cert_file, part.read()[0])
            names = each.names or tuple(certs.names_of(certificate))
            if not names:
                raise PkiError(f"{each.cert_file} contains no names: use {flag} CERT,KEY:NAME")
        pairs.append(NamedPair(cert_file=each.cert_file, key_file=each.key_file, names=names))
    policy = TlsPolicy(
        min_version=options.min_version,
        cipher_suites=options.cipher_suites,
        client_certificates=options.client_auth,
    )
    return TlsMaterial(replace(files, named=tuple(pairs)), policy)


def part_name(part: TlsPart) -> str:
    """The name of files that belong together, for the log."""
    if part.is_pair:
        return f"the certificate {part.paths[0]} with its key {part.paths[1]}"
    return f"the CA {part.paths[0]}"


def _published_authorities(pki: Pki, options: PkiOptions) -> dict[TlsPart, tuple[bytes, ...]]:
    """A process without a listener still publishes the CAs that clients must trust."""
    found: dict[TlsPart, tuple[bytes, ...]] = {}
    given = pki.given
    if options.tls_cert_file is not None and given.serving_cert_pem is not None:
        found[TlsPart((options.tls_cert_file,))] = (given.serving_cert_pem,)
    if options.client_ca_file is not None and given.client_ca_pem is not None:
        found[TlsPart((options.client_ca_file,))] = (given.client_ca_pem,)
    return found


def _read_all(parts: Sequence[TlsPart]) -> dict[TlsPart, Read]:
    """Read and validate files as at the start; for a thread."""
    return {part: _read_part(part) for part in parts}


def _read_part(part: TlsPart) -> Read:
    try:
        if part.is_pair:
            check_mode(part.paths[1])
        found = part.read()
        if not part.is_pair:
            check_authorities(found[0])
    except Refusal as error:
        return error
    return found


def _log_slow() -> None:
    logger.error(
        "reading the certificate and token files takes more than %d s: until it completes, nothing"
        " is renewed, and changes of these files have no effect",
        SLOW_SECONDS,
    )


def _content_of(paths: Sequence[Path]) -> str:
    """Hash of the content and access modes of files, or the error if they cannot be read."""
    whole = hashlib.sha256()

    def note(status: os.stat_result) -> None:
        whole.update(f"{status.st_mode}/{status.st_uid}/".encode())

    for path in paths:
        try:
            content = read_regular_file(path, bytes_max=FILE_BYTES_MAX, check=note)
        except OSError as error:
            content = f"unreadable: {error.errno}".encode()
        whole.update(hashlib.sha256(content).digest())
    return whole.hexdigest()
