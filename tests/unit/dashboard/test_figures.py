"""The figures that a server writes to its lease."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import Runtime
from restow.apis.names import FIGURES_ANNOTATION
from restow.apiserver.lease_notes import LeaseNotes
from restow.request.metrics import Labels, Metrics, Totals
from restow.storage.drivers import open_storage
from restow.storageversion.membership import Membership, MembershipOptions
from restow.storageversion.object_codec import lease_key

GET: Labels = ("get", "", "v1", "pods", "", "200")
LIST: Labels = ("list", "", "v1", "pods", "", "200")
WATCH: Labels = ("watch", "", "v1", "pods", "", "200")


def test_requests_are_counted_over_all_verbs() -> None:
    """Counts and durations of all verbs are added up, except long-running watches."""
    metrics = Metrics()
    assert metrics.totals() == Totals()
    metrics.count(GET, 0.002)
    metrics.count(LIST, 0.3)
    metrics.count(WATCH, 500.0)
    totals = metrics.totals()
    assert totals.requests == 2
    assert totals.seconds == 0.302


@given(st.lists(st.floats(0.0001, 9.0), min_size=1, max_size=300), st.floats(0.0, 0.5))
def test_a_share_of_requests_is_slower_than_a_bound(times: list[float], share: float) -> None:
    """At most that share of the requests took longer than the reported bound, and no smaller
    bound of the histogram has this property."""
    metrics = Metrics()
    for seconds in times:
        metrics.count(GET, seconds)
    bound = metrics.totals().slower_than(share)
    assert bound is not None
    assert sum(seconds > bound for seconds in times) <= len(times) * share
    smaller = [each for each in (0.0005, 0.01, 0.1, 1.0, 5) if each < bound]
    for each in smaller:
        assert sum(seconds > each for seconds in times) > len(times) * share


def test_percentiles_cover_the_time_since_the_last_renewal() -> None:
    """The percentile covers the time since the last renewal, although counters only grow."""
    metrics = Metrics()
    notes = LeaseNotes(metrics)
    metrics.count(GET, 0.8)
    first = orjson.loads(notes()[FIGURES_ANNOTATION])
    assert first == {"requests": 1, "seconds": 0.8, "p99Seconds": 1.0}
    metrics.count(GET, 0.002)
    assert orjson.loads(notes()[FIGURES_ANNOTATION])["p99Seconds"] == 0.0025
    assert orjson.loads(notes()[FIGURES_ANNOTATION]) == {
        "requests": 2,
        "seconds": 0.802,
        "p99Seconds": None,
    }


async def test_the_lease_carries_them_from_renewal_to_renewal() -> None:
    """Each renewal of the lease writes the current figures beside the other fields."""
    runtime = Runtime.simulated("figures")
    storage = await open_storage("memory:", runtime)
    metrics = Metrics()
    options = MembershipOptions(host="here", release="x", extra_annotations=LeaseNotes(metrics))
    membership = Membership(storage, runtime, options)
    await membership.join()
    metrics.count(GET, 0.002)
    assert await membership.renew()
    item = await storage.get(lease_key(membership.id))
    assert item is not None
    annotations = orjson.loads(item.value)["metadata"]["annotations"]
    assert orjson.loads(annotations[FIGURES_ANNOTATION])["requests"] == 1
    assert annotations["coordination.restow.dev/member"] == "report"
    await storage.close()
