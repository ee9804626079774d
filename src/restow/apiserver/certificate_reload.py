"""Certificates that stay good while a server runs: own ones renewed, given ones read again.

Now and then it looks whether a certificate of the keys' directory comes to its end, and makes a new
one; several servers may share the directory, so the lock of `pki` decides who does. And it looks
whether files hold something else than what is in use, by their content: what a peer has renewed,
and what somebody has given. New connections get what is new; open ones go on with what they have.

Files that belong together are judged once, and apart from all others: a certificate with its key,
and each file of authorities. What a start would refuse is not taken, nor what has expired while the
one in use has not: the old stays, one line in the log names the file, and the next look tries
again. It holds up nothing else: an authority that is taken back must go, whatever else is wrong.

Not here: when a certificate is old, and how one is made (`pki`, `certificates`).
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

LOOK_SECONDS: Final = 30.0
"""As often as files are read again; half of what the reference takes."""
SLOW_SECONDS: Final = 20.0
"""After which it is said that files are not read: nothing is renewed as long as that lasts."""
FILE_BYTES_MAX: Final = 1024 * 1024
OWN_KEYS: Final = "the keys of the cluster"

logger = logging.getLogger(__name__)

Refusal = (PkiError, TlsError, ValueError, OSError)
Read = tuple[bytes, ...] | Exception
"""What files hold, or why they cannot be used."""

T = TypeVar("T")


@dataclass(slots=True)
class _Followed:
    """Files, what they held when they were taken, and who takes them."""

    paths: tuple[Path, ...]
    take: Callable[[], None]
    taken: str


@dataclass(slots=True)
class ReloadCounts:
    """How often something new was found, and what became of it."""

    success: int = 0
    failure: int = 0
    last_error: dict[str, str] = field(default_factory=dict)
    """Of each thing that is looked at; not there while it is well."""


class CertificateReload:
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
        self.outcomes = ReloadCounts()
        self._options = options
        self._runtime = runtime
        self._material = material
        self._followed: list[_Followed] = []
        self._published_authorities = (
            {} if material is not None else _published_authorities(pki, options)
        )
        """What others were told of, where no listener shows it; by the files that hold it."""
        self._serving_end = self._find_end()

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
        apart = {path for each in self._followed for path in each.paths}
        parts = [part for part in self._parts() if apart.isdisjoint(part.paths)]
        is_shown = True
        for part, read in (await self._apart(partial(_read_all, parts))).items():
            is_well = self._try(part_name(part), partial(self._take_part, part, read))
            is_shown &= is_well or not self._is_own(part)
        if found is not None and is_shown:  # else clients would be told to trust what none sees
            self._take_keys(found)
        for each in self._followed:
            content = await self._apart(partial(_content_of, each.paths))
            what = ", ".join(map(str, each.paths))
            if content != each.taken:
                self._try(what, partial(self._take, each, content))
            else:  # whatever was wrong with it
                self.outcomes.last_error.pop(what, None)

    async def _apart(self, work: Callable[[], T]) -> T:
        """Read files where nobody waits for it: a file system may not answer, ever."""
        slow = self._runtime.clock.call_later(SLOW_SECONDS, _say_slow)
        try:
            return await in_own_thread("certificates", work)
        finally:
            slow.cancel()

    def publish(self, metrics: Metrics) -> None:
        """Show how long the certificate in use still holds, and what was renewed."""
        metrics.gauge(
            "restow_serving_certificate_expiration_seconds",
            "Seconds until the certificate that clients see expires; below 0: since it has.",
            (),
            lambda: [((), self._seconds_left())] if self._serving_end else [],
        )
        metrics.counter(
            "restow_certificate_reloads_total",
            "Certificates and authorities that were found to have changed, by what became of it.",
            ("outcome",),
            lambda: [
                (("success",), self.outcomes.success),
                (("failure",), self.outcomes.failure),
            ],
        )

    async def _look_at_keys(self) -> Pki | None:
        """Own keys that differ from those in use, if there are such."""
        try:
            refresh = partial(refresh_pki, self.pki, self._runtime, self._options)
            found = await self._apart(refresh)
        except Refusal as error:
            self._refuse(OWN_KEYS, error)
            return None
        if found is None:
            return None  # a peer has the lock, and the next look sees what it has made
        if found.fingerprint != self.pki.fingerprint:
            text = f"{found.directory} holds the keys of another cluster: put the old ones back"
            self._refuse(OWN_KEYS, PkiError(text))
            return None
        self.outcomes.last_error.pop(OWN_KEYS, None)
        return None if found == self.pki else found

    def _take_keys(self, found: Pki) -> None:
        self.outcomes.success += 1
        logger.info("certificates in %s were renewed", found.directory)
        self._notify(replace(found, given=self.pki.given))

    def _notify(self, pki: Pki) -> None:
        self.pki = pki
        for listener in tuple(self.listeners):
            try:
                listener(pki)
            except Refusal as error:  # such as a full disk; the others still must know
                logger.warning("what was renewed could not be passed on: %s", error)

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

    def _take_part(self, part: TlsPart, read: Read) -> bool:
        """Use what some files hold, if it is new; whether it was. Raises one of Refusal."""
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
            logger.error("%s %s, and so had what was in use: it is taken", part.paths[0], late)
        logger.info("new connections go by %s as it is now", part_name(part))
        options, given = self._options, self.pki.given
        if part.paths[0] == options.tls_cert_file:
            given = replace(given, serving_cert_pem=read[0])
        elif part.paths == (options.client_ca_file,):
            given = replace(given, client_ca_pem=read[0])
        if given != self.pki.given:
            self._notify(replace(self.pki, given=given))
        return True

    def _time_problem(self, part: TlsPart, read: tuple[bytes, ...]) -> str | None:
        """Why a new certificate does not hold now, if the one in use does not hold either."""
        if not part.is_pair:
            return None
        path, now = part.paths[0], self._runtime.clock.wall()
        problem = certs.time_problem(certs.load_certificate(path, read[0]), now)
        held = certs.load_certificate(path, self._in_use(part)[0])
        if problem is not None and certs.time_problem(held, now) is None:
            raise PkiError(f"{path} {problem}, and the certificate in use still holds")
        return problem

    def _take(self, followed: _Followed, content: str) -> bool:
        """Let others use a file of theirs; TLS goes by it when they do."""
        followed.take()
        for part in self._parts():
            if set(part.paths) <= set(followed.paths):
                self._take_part(part, _read_part(part))
        followed.taken = content
        return True

    def _find_end(self) -> float | None:
        """When the certificate in use ends."""
        if self._material is None:
            return None
        pem = self._material.in_use(self._material.parts[0])[0]
        certificate = certs.load_certificate(self._material.files.cert_file, pem)
        return certificate.not_valid_after_utc.timestamp()

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
                raise PkiError(f"{each.cert_file} has no names: give some, {flag} C,K:NAME")
        pairs.append(NamedPair(cert_file=each.cert_file, key_file=each.key_file, names=names))
    policy = TlsPolicy(
        min_version=options.min_version,
        cipher_suites=options.cipher_suites,
        client_certificates=options.client_auth,
    )
    return TlsMaterial(replace(files, named=tuple(pairs)), policy)


def part_name(part: TlsPart) -> str:
    """How a log names files that belong together."""
    if part.is_pair:
        return f"the certificate {part.paths[0]} with its key {part.paths[1]}"
    return f"the authority {part.paths[0]}"


def _published_authorities(pki: Pki, options: PkiOptions) -> dict[TlsPart, tuple[bytes, ...]]:
    """Who shows no certificate still tells others whom to trust."""
    found: dict[TlsPart, tuple[bytes, ...]] = {}
    given = pki.given
    if options.tls_cert_file is not None and given.serving_cert_pem is not None:
        found[TlsPart((options.tls_cert_file,))] = (given.serving_cert_pem,)
    if options.client_ca_file is not None and given.client_ca_pem is not None:
        found[TlsPart((options.client_ca_file,))] = (given.client_ca_pem,)
    return found


def _read_all(parts: Sequence[TlsPart]) -> dict[TlsPart, Read]:
    """For a thread: what files hold, each judged as a start does."""
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


def _say_slow() -> None:
    logger.error(
        "the files of certificates and tokens are not read after %d s: until they are, nothing is"
        " renewed, and nothing that changes in them is seen",
        SLOW_SECONDS,
    )


def _content_of(paths: Sequence[Path]) -> str:
    """What files hold and who may change them, or why they cannot be read."""
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
