"""Health checks, including post-start hooks, and their metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from restow.aio import SimulatedClock
from restow.endpoints.health import HealthChecks, Probe
from restow.endpoints.post_start_hooks import (
    IDENTITY_LEASE_COLLECTOR,
    IDENTITY_LEASE_CONTROLLER,
    STORAGE_VERSION_UPDATER,
    PostStartHooks,
)
from restow.httpserver.request import Headers, HttpRequest, Peer
from restow.request.context import Context
from restow.request.metrics import HealthMetrics, Metrics
from restow.request.request_info import parse_request

PROBES: tuple[Probe, ...] = ("healthz", "livez", "readyz")
UPDATER = f"poststarthook/{STORAGE_VERSION_UPDATER}"


def ask(health: HealthChecks, probe: Probe, name: str = "", query: str = "") -> tuple[int, str]:
    request = HttpRequest("GET", f"/{probe}", query, Headers([]), b"", Peer(1), 0.0)
    answer = health.answer(Context(request, parse_request("GET", f"/{probe}?{query}")), probe, name)
    assert isinstance(answer.body, bytes)
    return answer.status, answer.body.decode()


def samples(health: HealthChecks) -> dict[tuple[str, ...], float]:
    """Each sample of the metrics: its name, label values, and value."""
    document = HealthMetrics(states=health.states, counts=health.counts).document().decode()
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): (
            sample.value
        )
        for family in text_string_to_metric_families(document)
        for sample in family.samples
    }


def test_names_match_kubernetes() -> None:
    """Metric names match those in existing dashboards."""
    assert [STORAGE_VERSION_UPDATER, IDENTITY_LEASE_CONTROLLER, IDENTITY_LEASE_COLLECTOR] == [
        "built-in-resources-storage-version-updater",
        "start-kube-apiserver-identity-lease-controller",
        "start-kube-apiserver-identity-lease-garbage-collector",
    ]


def test_hook() -> None:
    """An unfinished hook is a 500; the reason is shown only on the path of the check itself."""
    health = HealthChecks()
    health.add("ping", lambda: None)
    hook = PostStartHooks(health, SimulatedClock(), livez_grace_seconds=0).add(
        STORAGE_VERSION_UPDATER
    )
    for probe in PROBES:
        assert ask(health, probe) == (
            500,
            f"[+]ping ok\n[-]{UPDATER} failed: reason withheld\n{probe} check failed\n",
        )
        assert ask(health, probe, UPDATER) == (500, "internal server error: not finished\n")
        assert ask(health, probe, query=f"exclude={UPDATER}") == (200, "ok")
        assert ask(health, probe, query=f"verbose&exclude={UPDATER}") == (
            200,
            f"[+]ping ok\n[+]{UPDATER} excluded: ok\n{probe} check passed\n",
        )
        assert ask(health, probe, "poststarthook/none")[0] == 404
    hook.fail("no lease")
    assert ask(health, "readyz")[0] == 500
    assert ask(health, "readyz", UPDATER) == (500, "internal server error: no lease\n")
    hook.finish()
    for probe in PROBES:
        assert ask(health, probe) == (200, "ok")
        assert ask(health, probe, UPDATER) == (200, "ok")
        assert ask(health, probe, query="verbose") == (
            200,
            f"[+]ping ok\n[+]{UPDATER} ok\n{probe} check passed\n",
        )


def test_exclude_of_an_unknown_check() -> None:
    """A name that is not a check is reported, not silently ignored."""
    health = HealthChecks()
    health.add("ping", lambda: None)
    code, text = ask(health, "readyz", query="verbose&exclude=pong")
    assert (code, text.splitlines()) == (
        200,
        [
            "[+]ping ok",
            'warn: some health checks cannot be excluded: no matches for "pong"',
            "readyz check passed",
        ],
    )


async def test_livez_waits_for_a_slow_start() -> None:
    """/livez has a grace period for an unfinished hook and none for a failed one; the others have
    none."""
    clock, health = SimulatedClock(), HealthChecks()
    hooks = PostStartHooks(health, clock, livez_grace_seconds=60)
    slow, failed = hooks.add("slow"), hooks.add("failed")
    assert [ask(health, probe)[0] for probe in PROBES] == [500, 200, 500]
    await clock.advance(59)
    assert ask(health, "livez")[0] == 200
    failed.fail("no way")
    assert ask(health, "livez", "poststarthook/failed")[0] == 500
    assert ask(health, "livez", "poststarthook/slow")[0] == 200
    failed.finish()
    await clock.advance(1)
    assert ask(health, "livez")[0] == 500
    slow.finish()
    assert [ask(health, probe)[0] for probe in PROBES] == [200, 200, 200]


def test_metrics() -> None:
    """A gauge has the current state of each check, without a probe; a counter the results of
    probes."""
    health = HealthChecks()
    hook = PostStartHooks(health, SimulatedClock(), livez_grace_seconds=60).add(
        STORAGE_VERSION_UPDATER
    )
    health.add("storage", lambda: "gone", "healthz", "readyz")
    name = f"name={UPDATER}"
    found = samples(health)
    assert found == {
        ("kubernetes_healthcheck", name, "type=healthz"): 0,
        ("kubernetes_healthcheck", name, "type=livez"): 1,
        ("kubernetes_healthcheck", name, "type=readyz"): 0,
        ("kubernetes_healthcheck", "name=storage", "type=healthz"): 0,
        ("kubernetes_healthcheck", "name=storage", "type=readyz"): 0,
    }, "to scrape is not to probe"
    ask(health, "readyz")
    hook.finish()
    for _ in range(2):
        ask(health, "readyz")
    ask(health, "readyz", query=f"exclude={UPDATER}")
    ask(health, "readyz", UPDATER)
    found = samples(health)
    assert found["kubernetes_healthcheck", name, "type=readyz"] == 1
    total = "kubernetes_healthchecks_total"
    assert {key: value for key, value in found.items() if key[0] == total} == {
        (total, name, "status=error", "type=readyz"): 1,
        (total, name, "status=success", "type=readyz"): 2,
        (total, "name=storage", "status=error", "type=readyz"): 4,
    }
    assert b"healthcheck" not in Metrics().document()
