"""Metrics: the names of kube-storage-version-migrator and ours, with bounded labels."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from restow.aio import SimulatedClock
from restow.client import ConnectionFailed
from restow.migration.event_sinks import MigratorMetrics, TriggerMetrics
from restow.migration.metrics import OTHER, RATE_SECONDS, ControllerMetrics
from restow.migration.migrator.passes import PageDone
from restow.migration.migrator.server_rewrite import REWRITE_FAILED
from restow.migration.migrator.write_errors import reason_of

PODS = "/v1, Resource=pods"
KSVM = "storage_migrator_core_migrator_"
LOST = ConnectionFailed("one", "lost", advice="")


def page(rewritten: int = 0, *, failed: int = 0, unchanged: int = 0) -> PageDone:
    return PageDone(
        token="t",
        scanned=rewritten + failed + unchanged,
        rewritten=rewritten,
        unchanged=unchanged,
        failed=failed,
    )


def samples(metrics: ControllerMetrics) -> dict[tuple[str, ...], float]:
    """Returns every sample by its name and label values."""
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(metrics.document().decode()):
        for sample in family.samples:
            key = (sample.name, *(value for _, value in sorted(sample.labels.items())))
            found[key] = sample.value
    return found


def test_it_satisfies_both_protocols() -> None:
    """One object implements the metrics protocols of the trigger and the migrator."""
    metrics = ControllerMetrics(SimulatedClock())
    trigger: TriggerMetrics = metrics
    migrator: MigratorMetrics = metrics
    trigger.decided("pods", "Narrow")
    migrator.page(PODS, page(1))


def test_the_names_of_the_original_have_no_suffix() -> None:
    """Dashboards for kube-storage-version-migrator find counters by their names without a
    suffix."""
    metrics = ControllerMetrics(SimulatedClock())
    metrics.page(PODS, page(3, unchanged=2))
    metrics.page(PODS, page(1))
    metrics.remaining(PODS, 7)
    metrics.ended(PODS, "Succeeded", 30.0)
    metrics.ended(PODS, "Failed", 300.0)
    found = samples(metrics)
    assert found[f"{KSVM}remaining_objects", PODS] == 7
    assert found[f"{KSVM}migration_duration_seconds_count", PODS] == 2
    assert found[f"{KSVM}migration_duration_seconds_bucket", "120", PODS] == 1
    assert found[f"{KSVM}migration_duration_seconds_bucket", "+Inf", PODS] == 2
    assert found[f"{KSVM}migration_duration_seconds_sum", PODS] == 330
    # The library's parser would add the suffix, so search the text for these.
    text = metrics.document().decode()
    assert f'{KSVM}migrated_objects{{resource="{PODS}"}} 4.0\n' in text
    assert f'{KSVM}migrations{{resource="{PODS}",status="Succeeded"}} 1.0\n' in text
    assert f'{KSVM}migrations{{resource="{PODS}",status="Failed"}} 1.0\n' in text
    assert f"# TYPE {KSVM}migrated_objects counter\n" in text
    assert f"# TYPE {KSVM}migrations counter\n" in text
    assert "untyped" not in text


def test_our_own() -> None:
    """Pages, results, failure reasons, requests in flight, decisions, agreement, leaders and
    events."""
    metrics = ControllerMetrics(SimulatedClock())
    metrics.page(PODS, page(3, failed=1, unchanged=2))
    metrics.object_failed(PODS, "Forbidden")
    metrics.in_flight(PODS, 12)
    metrics.decided("pods", "CreateMigration")
    metrics.failed("pods")
    metrics.states(agreed=5, split=1)
    metrics.set_leading("trigger", is_leading=True)
    metrics.restarted("migrator")
    metrics.event_dropped()
    metrics.health(lambda: {"trigger": True, "connection": False})
    found = samples(metrics)
    assert found["restow_migrator_pages_total", PODS] == 1
    assert found["restow_migrator_objects_total", "unchanged", PODS] == 2
    assert found["restow_migrator_failed_objects_total", "Forbidden", PODS] == 1
    assert found["restow_migrator_in_flight", PODS] == 12
    assert found["restow_trigger_decisions_total", "CreateMigration"] == 1
    assert found[("restow_trigger_failures_total",)] == 1
    assert found["restow_trigger_resources", "split"] == 1
    assert found["restow_controllers_leader", "trigger"] == 1
    assert found["restow_controllers_restarts_total", "migrator"] == 1
    assert found["restow_controllers_events_total", "dropped"] == 1
    assert found["restow_controllers_healthy", "connection"] == 0


@pytest.mark.parametrize("reason", [REWRITE_FAILED, reason_of(LOST), "InternalError", "Forbidden"])
def test_reasons_of_failed_objects_are_distinct(reason: str) -> None:
    """Each reason that a rewrite method reports is a label value of its own, and not "other"."""
    metrics = ControllerMetrics(SimulatedClock())
    metrics.object_failed(PODS, reason)
    assert samples(metrics)["restow_migrator_failed_objects_total", reason, PODS] == 1


async def test_the_rate_covers_the_last_seconds() -> None:
    """Objects per second are counted over a window, so that the rate falls to 0 when nothing
    runs."""
    clock = SimulatedClock()
    metrics = ControllerMetrics(clock)
    metrics.page(PODS, page(100))
    await clock.advance(1)
    metrics.page(PODS, page(50))
    assert samples(metrics)["restow_migrator_objects_per_second", PODS] == 150 / RATE_SECONDS
    await clock.advance(RATE_SECONDS)
    assert samples(metrics)["restow_migrator_objects_per_second", PODS] == 50 / RATE_SECONDS
    await clock.advance(RATE_SECONDS)
    assert samples(metrics)["restow_migrator_objects_per_second", PODS] == 0


def test_unknown_values_are_not_exported() -> None:
    """Without a count of the remaining objects, there is no gauge instead of a wrong one."""
    metrics = ControllerMetrics(SimulatedClock())
    metrics.remaining(PODS, 3)
    metrics.remaining(PODS, None)
    assert (f"{KSVM}remaining_objects", PODS) not in samples(metrics)


@given(
    names=st.lists(st.text(max_size=20), max_size=30),
    words=st.lists(st.text(max_size=20), max_size=30),
)
def test_no_label_grows_without_bound(names: list[str], words: list[str]) -> None:
    """For any resources, reasons, actions and statuses, the number of label values is bounded."""
    metrics = ControllerMetrics(SimulatedClock(), resources_max=5)
    for name in names:
        metrics.page(name, page(1))
    for word in words:
        metrics.object_failed("a", word)
        metrics.ended("a", word, 1.0)
        metrics.decided("a", word)
    found = samples(metrics)
    assert _labels(found, f"{KSVM}migrated_objects_total", 1) <= {*names, OTHER}
    assert len(_labels(found, "restow_migrator_pages_total", 1)) <= 5 + 1
    assert len(_labels(found, f"{KSVM}migrations_total", 2)) <= 4
    assert len(_labels(found, "restow_trigger_decisions_total", 1)) <= 8


def _labels(found: Iterable[tuple[str, ...]], name: str, index: int) -> set[str]:
    return {key[index] for key in found if key[0] == name}


def test_successes_and_failures_are_passed_on() -> None:
    """The counted events also set the health of each controller."""
    events: list[tuple[str, str]] = []
    metrics = ControllerMetrics(
        SimulatedClock(),
        on_success=lambda name: events.append(("success", name)),
        on_trouble=lambda name: events.append(("trouble", name)),
    )
    metrics.states(agreed=1, split=0)
    metrics.failed("pods")
    metrics.page(PODS, page(1))
    assert events == [("success", "trigger"), ("trouble", "trigger"), ("success", "migrator")]
