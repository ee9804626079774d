"""Annotations of a server on its identity lease."""

from restow.aio import Runtime
from restow.apis.names import ENCRYPTION_PROBLEM_ANNOTATION
from restow.apiserver.lease_notes import REASON_CHARACTERS_MAX, LeaseNotes
from restow.encryption.key_reload import ReloadedKeys
from restow.request.metrics import Metrics
from restow.storage.drivers import open_storage
from restow.storageversion.foreground_load import ForegroundLoad
from restow.storageversion.membership import Membership, MembershipOptions
from restow.storageversion.store_scan import StoreScanner


async def test_a_refused_encryption_file_is_on_the_lease_and_in_a_scan() -> None:
    """From the next renewal until the file is accepted."""
    runtime = Runtime.simulated("refused")
    storage = await open_storage("memory:", runtime)
    keys = ReloadedKeys("/etc/keys.yaml", runtime)
    options = MembershipOptions(host="here", extra_annotations=LeaseNotes(Metrics(), keys))
    membership = Membership(storage, runtime, options)
    load = ForegroundLoad(runtime.clock.monotonic)
    scanner = StoreScanner(storage, None, runtime.clock, load)

    async def published() -> str:
        assert await membership.renew()
        (server,) = (await scanner.page()).status.servers
        return server.encryption_problem

    await membership.join()
    assert await published() == ""
    keys.last_error = "it lacks aesgcm:one"
    assert await published() == "/etc/keys.yaml: it lacks aesgcm:one"
    keys.last_error = ""
    assert await published() == ""
    await storage.close()


def test_a_long_reason_is_cut() -> None:
    """The size of an annotation is limited."""
    keys = ReloadedKeys("/etc/keys.yaml", Runtime.simulated("long"))
    keys.last_error = "x" * 10_000
    noted = LeaseNotes(Metrics(), keys)()[ENCRYPTION_PROBLEM_ANNOTATION]
    assert len(noted) < REASON_CHARACTERS_MAX + 100
