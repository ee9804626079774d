"""An etcd that requires client certificates, and the errors without a valid one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.census import open_source
from restow.storage.backup import write_backup
from restow.storage.checkup import EtcdFacts, check_up
from restow.storage.drivers import open_storage
from restow.storage.errors import OpenRefused
from restow.storage.etcd import EtcdOptions, open_etcd, parse_address
from restow.storage.interface import EVERYTHING, Done, Key, Put, Refused, Transaction
from restow.storage.interface import Absent as AbsentKey
from tests.support.certificates import CertificateFiles, make_certificate, sign_certificate
from tests.support.etcd_process import EtcdCluster, start_etcd


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    directory = tmp_path_factory.mktemp("mutual")
    certificates = make_certificate(directory / "certificates", name="etcd")
    with start_etcd(
        directory / "etcd", certificates=certificates, demands_certificates=True
    ) as cluster:
        yield cluster


@pytest.fixture
def files(etcd: EtcdCluster, tmp_path: Path) -> CertificateFiles:
    """A client's certificate, in separate files."""
    assert etcd.certificates is not None
    return sign_certificate(etcd.certificates, tmp_path / "client", name="restow")


def options_of(etcd: EtcdCluster, files: CertificateFiles, **changes: object) -> EtcdOptions:
    settings: dict[str, object] = {
        "endpoints": etcd.endpoints,
        "tls": True,
        "ca_file": files.ca_file,
        "cert_file": files.cert_file,
        "key_file": files.key_file,
        "request_timeout_seconds": 3.0,
    }
    return EtcdOptions(**(settings | changes))  # type: ignore[arg-type]


async def test_every_connection_presents_the_certificate(
    etcd: EtcdCluster, runtime: Runtime, tmp_path: Path
) -> None:
    """Reads, commits, watches, census, backup and doctor work by one address with three files."""
    storage = await open_storage(etcd.url, runtime)
    try:
        watch = storage.watch(EVERYTHING, after=await storage.revision())
        create = Transaction((AbsentKey(Key("/a")),), (Put(Key("/a"), b"1"),))
        assert isinstance(await storage.commit(create), Done)
        assert isinstance(await storage.commit(create), Refused)
        assert (await anext(watch)).events[0].value == b"1"
        assert [item.key for item in (await storage.range(EVERYTHING)).items] == ["/a"]
    finally:
        await storage.close()
    source = await open_source(etcd.url, runtime)
    assert await source.count(("/",)) == 1
    await source.close()
    assert (await write_backup(etcd.url, tmp_path / "a.backup", runtime)).size > 0
    facts = await check_up(etcd.url, runtime)
    assert isinstance(facts, EtcdFacts)
    assert [member.problem for member in facts.members] == [""]


@pytest.mark.parametrize("way", ["store", "census", "backup"])
async def test_without_a_certificate_nothing_is_opened(
    etcd: EtcdCluster, runtime: Runtime, tmp_path: Path, way: str
) -> None:
    """The error is immediate, and names the missing flags."""
    address = etcd.url.partition("&")[0]

    async def count() -> None:
        source = await open_source(address, runtime)
        try:
            await source.count(("/",))
        finally:
            await source.close()

    ways = {
        "store": lambda: open_storage(address, runtime),
        "backup": lambda: write_backup(address, tmp_path / "a.backup", runtime),
        "census": count,
    }
    with pytest.raises(OpenRefused, match="--etcd-certfile"):
        await ways[way]()


async def test_a_certificate_of_another_is_refused(
    etcd: EtcdCluster, runtime: Runtime, files: CertificateFiles, tmp_path: Path
) -> None:
    """A certificate of another authority is rejected, both the client's and the server's."""
    other = make_certificate(tmp_path / "other", name="other")
    wrong = options_of(etcd, files, cert_file=other.cert_file, key_file=other.key_file)
    with pytest.raises(OpenRefused, match="client certificate of an authority that it trusts"):
        await open_etcd(wrong, runtime)
    with pytest.raises(OpenRefused, match="not signed by the given authority"):
        await open_etcd(options_of(etcd, files, ca_file=other.ca_file), runtime)


async def test_files_are_checked_first(
    etcd: EtcdCluster, runtime: Runtime, files: CertificateFiles, tmp_path: Path
) -> None:
    """Expired certificates, wrong keys, readable keys and invalid PEM are named by their file."""
    assert etcd.certificates is not None
    expired = sign_certificate(
        etcd.certificates, tmp_path / "expired", name="restow", end=-timedelta(minutes=1)
    )
    nonsense = tmp_path / "nonsense.pem"
    nonsense.touch(mode=0o600)
    for changes, text in (
        ({"cert_file": expired.cert_file, "key_file": expired.key_file}, "cert.pem expired at"),
        ({"key_file": expired.key_file}, "does not match the key"),
        ({"key_file": nonsense}, "nonsense.pem does not contain a private key"),
        ({"cert_file": nonsense}, "nonsense.pem does not contain a certificate"),
        ({"ca_file": nonsense}, "nonsense.pem does not contain a certificate"),
        ({"ca_file": tmp_path / "none"}, "cannot read .*none"),
        ({"key_file": tmp_path / "none"}, "cannot read .*none"),
    ):
        with pytest.raises(OpenRefused, match=text):
            await open_etcd(options_of(etcd, files, **changes), runtime)
    files.key_file.chmod(0o644)
    with pytest.raises(OpenRefused, match=r"mode 644 .* chmod 600 .*key\.pem"):
        await open_etcd(options_of(etcd, files), runtime)
    (tmp_path / "password").touch(mode=0o604)
    (tmp_path / "password").chmod(0o604)
    with pytest.raises(OpenRefused, match="mode 604"):
        parse_address(f"etcds://h:1?user=u&password-file={tmp_path / 'password'}")


async def test_new_files_are_used_without_a_restart(
    etcd: EtcdCluster, runtime: Runtime, files: CertificateFiles, tmp_path: Path
) -> None:
    """A watch survives the change; an incomplete pair is not loaded; the next connection is new."""
    assert etcd.certificates is not None
    storage = await open_etcd(options_of(etcd, files, request_timeout_seconds=0.2), runtime)
    connection = storage._connection
    try:
        watch = storage.watch(EVERYTHING, after=await storage.revision())
        assert not await connection.renew()
        newer = sign_certificate(etcd.certificates, tmp_path / "newer", name="newer")
        shutil.copy(newer.cert_file, files.cert_file)
        with pytest.raises(OpenRefused, match="does not match the key"):
            await connection.renew()
        before = connection._members[0]
        await storage.commit(Transaction(writes=(Put(Key("/b"), b"1"),)))
        assert (await anext(watch)).events[0].value == b"1"
        shutil.copy(newer.key_file, files.key_file)
        assert await connection.renew()
        assert connection._members[0] is not before
        outcome = await storage.commit(Transaction(writes=(Put(Key("/b"), b"2"),)))
        assert isinstance(outcome, Done)
        assert (await anext(watch)).events[0].value == b"2"
        assert connection._retired == []
    finally:
        await storage.close()
