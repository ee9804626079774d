"""Releases that store a kind in different versions, side by side and one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.e2e.storageversion.clusters import (
    EVENTS,
    REPORTS,
    STOP_SECONDS_MAX,
    V1,
    V2,
    WIDGETS,
    WIDGETS_NAME,
    Cluster,
    add_widget,
    call,
    common,
    entries,
    is_ready,
    replace,
    report,
    wait_for,
    widget,
)
from tests.e2e.storageversion.hammer import CONFIG_MAPS
from tests.support.server_process import ServerProcess

LOST: Final = "StorageVersionAgreementLost"
AGREED: Final = "StorageVersionAgreed"


def test_rolling_upgrade_and_back(cluster: Cluster) -> None:
    """While servers of two releases run there is no common version; after the last one it is the
    new one, and Events report both. The rollback does the same."""
    one, two = cluster.start("x+1", "x+1")
    assert common(one) == common(two) == V1
    assert count_events(one) == {}
    for turn, (release, version) in enumerate((("x+2", V2), ("x+1", V1))):
        for server in (one, two):
            add_widget(server, f"before-{turn}-{server.port}")
        replace(two, release)
        assert [common(server) for server in (one, two)] == [None, None]
        assert set(entries(one).values()) == {V1, V2}
        [condition] = report(two)["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "CommonEncodingVersionUnset")
        for server in (one, two):
            add_widget(server, f"mixed-{turn}-{server.port}")
        replace(one, release)
        assert [common(server) for server in (one, two)] == [version, version]
        wait_until_reported([one, two], turn + 1)
    names = {each["metadata"]["name"] for each in call(two, "GET", WIDGETS)["items"]}
    assert len(names) == 8
    assert cluster.audit() >= 8


def wait_until_reported(servers: Sequence[ServerProcess], times: int) -> None:
    """Waits until Events have reported the loss and the return of the common version this often
    each."""
    wanted = {LOST: times, AGREED: times}
    try:
        wait_for(lambda: count_events(servers[0]) == wanted, "it is told", servers=servers)
    except AssertionError as error:
        error.add_note(f"Events: {count_events(servers[0])}")
        raise


def count_events(server: ServerProcess) -> dict[str, int]:
    """Counts the Events about the upgraded kind by reason."""
    items = call(server, "GET", EVENTS)["items"]
    about = [each for each in items if each["involvedObject"]["name"] == WIDGETS_NAME]
    return dict(Counter(each["reason"] for each in about))


def test_release_that_cannot_read_stored_versions(cluster: Cluster) -> None:
    """After a release that stores v2 only, one that supports only v1 starts, writes everything
    but that kind, is not ready and reports why, and stops on request."""
    [newest] = cluster.start("x+3")
    call(newest, "POST", WIDGETS.replace("/v1/", "/v2/"), widget("in-v2"))
    assert newest.stop(seconds_max=STOP_SECONDS_MAX) == 0

    oldest = cluster.server("x")
    oldest.launch()
    oldest.wait_listening()
    wait_for(
        lambda: "widgets.example.com is not registered" in oldest.log_tail(),
        "it says what is wrong",
        servers=[oldest],
    )
    assert "let a release that knows them migrate it" in oldest.log_tail()
    wait_for(
        lambda: oldest.request("POST", CONFIG_MAPS, widget("possible"))[0] in (201, 409),
        "the rest can be written",
        servers=[oldest],
    )
    code, answer = oldest.request("POST", WIDGETS, widget("impossible"))
    assert code == 503
    assert "cannot read" in answer
    assert not is_ready(oldest)
    code, answer = oldest.get("/readyz/poststarthook/built-in-resources-storage-version-updater")
    assert (code, answer) == (500, "internal server error: not finished\n")
    assert oldest.get("/livez")[0] == 200
    assert oldest.get(f"{REPORTS}/{WIDGETS_NAME}")[0] == 404
    assert oldest.stop(seconds_max=STOP_SECONDS_MAX) == 0
    assert "Traceback" not in oldest.log_tail()
    assert cluster.members() == set()
    assert cluster.audit() > 0
