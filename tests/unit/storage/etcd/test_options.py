"""Options of the etcd driver, and their form as an address."""

from pathlib import Path

import pytest

from restow.storage.errors import OpenRefused
from restow.storage.etcd import EtcdOptions, parse_address


def test_plain_address() -> None:
    """An address may list several members, separated by commas."""
    options = parse_address("etcd://10.0.0.1:2379,[::1]:2380,etcd.example:2381")
    assert options.endpoints == ("10.0.0.1:2379", "[::1]:2380", "etcd.example:2381")
    assert not options.tls


def test_secure_address(tmp_path: Path) -> None:
    """Certificates and the user are options; the password comes from a file, not the address."""
    (tmp_path / "password").touch(mode=0o600)
    (tmp_path / "password").write_text("s3cret\n")
    options = parse_address(
        f"etcds://h:1?ca=/ca.pem&cert=/c.pem&key=/k.pem&user=u&password-file={tmp_path}/password"
    )
    assert options.tls
    assert (options.ca_file, options.cert_file) == (Path("/ca.pem"), Path("/c.pem"))
    assert (options.username, options.password) == ("u", "s3cret")
    assert "s3cret" not in repr(options)


@pytest.mark.parametrize(
    "address",
    [
        "etcd://127.0.0.1:99999",
        "etcd://127.0.0.1:0",
        "http://h:1",
        "etcd://",
        "etcd://h",
        "etcd://h:port",
        "etcd://h:1/path",
        "etcd://user:password@h:1",
        "etcd://h:1?colour=blue",
        "etcd://h:1?ca=/ca.pem",
        "etcds://h:1?cert=/c.pem",
        "etcds://h:1?user=u",
        "etcds://h:1?user=u&password-file=/no/such/file",
    ],
)
def test_bad_addresses_are_refused(address: str) -> None:
    """An invalid or incomplete address is refused with a reason."""
    with pytest.raises(OpenRefused):
        parse_address(address)


def test_options_without_endpoints_are_refused() -> None:
    """At least one endpoint is required."""
    with pytest.raises(OpenRefused):
        EtcdOptions(endpoints=())
