"""TLS, users and passwords, with a real etcd."""

from collections.abc import Iterator

import pytest

from restow.aio import Runtime
from restow.storage.errors import OpenRefused, Unavailable
from restow.storage.etcd import EtcdOptions, open_etcd, parse_address
from restow.storage.interface import EVERYTHING, Done, Key, Put, Revision, Transaction
from tests.support.certificates import make_certificate
from tests.support.etcd_process import EtcdCluster, EtcdUser, start_etcd

USER = EtcdUser(name="restow", password="open sesame")


@pytest.fixture(scope="module")
def secure_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    directory = tmp_path_factory.mktemp("secure")
    certificates = make_certificate(directory / "certificates", name="etcd")
    with start_etcd(directory / "etcd", certificates=certificates) as cluster:
        cluster.enable_auth(USER)
        yield cluster


def _options(etcd: EtcdCluster, **changes: object) -> EtcdOptions:
    assert etcd.certificates is not None
    settings: dict[str, object] = {
        "endpoints": etcd.endpoints,
        "tls": True,
        "ca_file": etcd.certificates.ca_file,
        "username": USER.name,
        "password": USER.password,
        "request_timeout_seconds": 3.0,
    }
    return EtcdOptions(**(settings | changes))  # type: ignore[arg-type]


async def test_reads_writes_and_watches_over_tls_with_a_password(
    secure_etcd: EtcdCluster, runtime: Runtime
) -> None:
    """With the right authority and password everything works."""
    storage = await open_etcd(_options(secure_etcd), runtime)
    try:
        watch = storage.watch(EVERYTHING, after=await storage.revision())
        outcome = await storage.commit(Transaction(writes=(Put(Key("/a"), b"1"),)))
        assert isinstance(outcome, Done)
        assert (await anext(watch)).events[0].value == b"1"
        item = await storage.get(Key("/a"))
        assert item is not None
        assert item.value == b"1"
    finally:
        await storage.close()


async def test_an_expired_token_is_renewed(secure_etcd: EtcdCluster, runtime: Runtime) -> None:
    """When the token has expired, reads, commits and watches log in again automatically."""
    storage = await open_etcd(_options(secure_etcd), runtime)
    connection = storage._connection
    stale = (("hasleader", "true"), ("token", "nonsense.1"))
    try:
        connection._metadata = stale
        revision = await storage.revision()
        connection._metadata = stale
        outcome = await storage.commit(Transaction(writes=(Put(Key("/b"), b"1"),)))
        assert isinstance(outcome, Done)
        connection._metadata = stale
        watch = storage.watch(EVERYTHING, after=revision)
        assert (await anext(watch)).revision == Revision(revision + 1)
    finally:
        await storage.close()


async def test_a_wrong_password_is_refused_clearly(
    secure_etcd: EtcdCluster, runtime: Runtime
) -> None:
    """The error names user and password as the cause."""
    with pytest.raises(OpenRefused, match="password"):
        await open_etcd(_options(secure_etcd, password="wrong"), runtime)


async def test_no_password_is_refused_clearly(secure_etcd: EtcdCluster, runtime: Runtime) -> None:
    """An etcd that requires a user is not opened without one."""
    with pytest.raises(OpenRefused, match="user"):
        await open_etcd(_options(secure_etcd, username=None, password=None), runtime)


async def test_a_wrong_authority_is_refused_clearly(
    secure_etcd: EtcdCluster, runtime: Runtime, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A server whose certificate another authority signed is not trusted."""
    other = make_certificate(tmp_path_factory.mktemp("other"), name="other")
    with pytest.raises(OpenRefused, match="authority"):
        await open_etcd(_options(secure_etcd, ca_file=other.ca_file), runtime)


async def test_plain_text_to_a_tls_port_fails(secure_etcd: EtcdCluster, runtime: Runtime) -> None:
    """Without TLS no reply comes, and the deadline applies."""
    endpoint = secure_etcd.endpoints[0]
    with pytest.raises(Unavailable):
        await open_etcd(EtcdOptions(endpoints=(endpoint,), request_timeout_seconds=1.0), runtime)


async def test_an_unnecessary_password(etcd: EtcdCluster, runtime: Runtime) -> None:
    """An unnecessary password does no harm, as with etcd's own client."""
    options = EtcdOptions(endpoints=etcd.endpoints, username="u", password="p")
    storage = await open_etcd(options, runtime)
    assert await storage.revision() >= 1
    await storage.close()


async def test_the_cluster_names_an_address_that_can_be_parsed(secure_etcd: EtcdCluster) -> None:
    """`open_storage` accepts the address of the test helper."""
    assert parse_address(secure_etcd.url).endpoints == secure_etcd.endpoints
