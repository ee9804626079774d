"""Options of the etcd driver, and their form as an address."""

from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.errors import OpenRefused
from restow.storage.etcd import EtcdOptions, parse_address
from restow.storage.etcd.connection import EtcdConnection


def test_plain_address() -> None:
    """An address may list several members, separated by commas."""
    options = parse_address("etcd://10.0.0.1:2379,[::1]:2380,etcd.example:2381?insecure=true")
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
        "etcd://127.0.0.1:1/path",
        "etcd://user:password@127.0.0.1:1",
        "etcd://127.0.0.1:1?colour=blue",
        "etcd://127.0.0.1:1?ca=/ca.pem",
        "etcds://h:1?insecure=true",
        "etcd://h:1?insecure=false",
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


@pytest.mark.parametrize(
    ("endpoints", "refused"),
    [
        ("127.0.0.1:1,127.9.9.9:1,[::1]:1,localhost:1,LocalHost:1", ""),
        ("10.0.0.1:1", "10.0.0.1"),
        ("127.0.0.1:1,etcd.example:1", "etcd.example"),
        ("[::2]:1", "[::2]"),
        ("0.0.0.0:1", "0.0.0.0"),
        ("127.0.0.1.example:1", "127.0.0.1.example"),
        ("localhost.example:1", "localhost.example"),
        ("2130706433:1", "2130706433"),
    ],
)
def test_without_tls_only_this_machine(endpoints: str, refused: str) -> None:
    """etcd:// to another host is refused with the flags to use, unless it is accepted."""
    assert parse_address(f"etcd://{endpoints}?insecure=true").endpoints
    assert parse_address(f"etcds://{endpoints}").endpoints
    if not refused:
        assert parse_address(f"etcd://{endpoints}").endpoints
        return
    with pytest.raises(OpenRefused, match=r"use etcds://.*--etcd-cafile.*--etcd-insecure") as error:
        parse_address(f"etcd://{endpoints}")
    assert f" and {refused} is not this machine" in str(error.value)


@pytest.mark.parametrize(
    ("address", "warned"),
    [("etcd://10.0.0.1:1?insecure=true", True), ("etcd://127.0.0.1:1", False)],
)
async def test_a_plain_connection_is_logged(
    address: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has a warning for each connection that others on the network can read."""
    await EtcdConnection(parse_address(address), Runtime.system()).close()
    texts = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert [("10.0.0.1" in text and "not encrypted" in text) for text in texts] == [True] * warned
