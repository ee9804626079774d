"""A rolling upgrade of real servers while the page is open: the page must show it correctly."""

from __future__ import annotations

import json
from typing import Any, Final

from restow.storage.interface import Key, Outcome, Put, Storage, Transaction
from tests.e2e.dashboard.browser import Browser, Page
from tests.e2e.dashboard.conftest import NewCluster, assert_clean, open_page, row_of, wait_live
from tests.e2e.storageversion.clusters import WIDGETS_NAME, Cluster, call
from tests.support.server_process import ServerProcess

MIGRATIONS: Final = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
REQUESTS_ROOT: Final = "/registry/migration.k8s.io/storageversionmigrations/"
HOSTILE: Final = "<img src=x onerror=alert(1)>"


def place(server: ServerProcess) -> str:
    return server.url.removeprefix("https://")


def upgrade(cluster: Cluster, server: ServerProcess, release: str) -> ServerProcess:
    """Replace a server by one of another release at the same address."""
    server.stop()
    heir = cluster.server(release)
    heir.port = server.port
    return heir.start()


def wait_verdict(page: Page, text: str) -> str:
    script = f"document.getElementById('verdict').textContent.includes({json.dumps(text)})"
    page.wait(script, f"the verdict says {text!r}")
    return page.text("#verdict")


def story(page: Page) -> list[str]:
    """The entries of the timeline, oldest first."""
    return page.texts("#events li span:last-child")[::-1]


def test_a_rolling_upgrade_is_shown_live(browser: Browser, new_cluster: NewCluster) -> None:
    """Columns follow the servers, disagreement and agreement are shown as they occur, and so are
    persisted versions; also when the server of the page itself is replaced."""
    cluster = new_cluster()
    first, second = cluster.start("x+1", "x+1")
    page = browser.page()
    open_page(page, first)

    assert page.text("#verdict").startswith("All servers agree on all 6")
    assert row_of(page, WIDGETS_NAME) == {
        "Resource": "widgets example.com",
        place(first): "v1",
        place(second): "v1",
        "Agreed": "v1",
        "May be stored": "unknown v1",
        "Migration": "",
    }
    assert sorted(page.texts(".server .release")) == ["release x+1", "release x+1"]

    second = upgrade(cluster, second, "x+2")
    verdict = wait_verdict(page, "differ")
    assert f"v1 by {place(first)}, v2 by {place(second)}" in verdict
    page.wait("document.querySelectorAll('.server').length === 2", "the old server is gone")
    page.wait("document.querySelectorAll('#matrix thead .server-column').length === 2", "columns")
    row = row_of(page, WIDGETS_NAME)
    assert (row[place(first)], row[place(second)]) == ("v1", "v2")
    assert "differ" in row["Agreed"]
    page.wait(
        f"document.querySelector('tr[data-resource=\"{WIDGETS_NAME}\"] .stored').innerText"
        ".includes('v2')",
        "v2 may be stored",
    )
    page.click("#differing")
    assert page.texts("#matrix tbody tr:not([hidden]) th span") == ["widgets"]
    page.click("#differing")

    first.stop()
    page.wait(
        "document.getElementById('state').dataset.state === 'reconnecting'",
        "the page sees that its server is gone",
    )
    heir = cluster.server("x+2")
    heir.port = first.port
    heir.start()
    wait_live(page)
    wait_verdict(page, "All servers agree. 1 resource may still be stored in an older version")
    # Leases and StorageVersions come by separate watches: a server may precede its entry.
    cells = f"document.querySelectorAll('tr[data-resource=\"{WIDGETS_NAME}\"] .version')"
    page.wait(
        f"{cells}.length === 2 && [...{cells}].every((cell) => cell.innerText === 'v2')",
        "both servers have an entry",
    )
    row = row_of(page, WIDGETS_NAME)
    assert (row[place(first)], row[place(second)], row["Agreed"]) == ("v2", "v2", "v2")
    assert page.texts(f'tr[data-resource="{WIDGETS_NAME}"] .chip.old') == ["v1"]
    assert page.texts(f'tr[data-resource="{WIDGETS_NAME}"] .chip.current') == ["v2"]
    assert sorted(page.texts(".server .release")) == ["release x+2", "release x+2"]

    told = story(page)
    order = [
        f"{place(second)}, release x+1, left",
        f"{place(second)}, release x+2, joined",
        "widgets.example.com: servers write v1 and v2",
        "widgets.example.com: all servers write v2",
    ]
    assert [each for each in told if each in order] == order
    assert {
        f"{place(first)}, release x+2, joined",
        "widgets.example.com: v2 may now be stored",
    } <= {*told}
    assert page.texts("#lanes .lane-name")[-2:] == ["Agreement", "Migrations"]
    assert_clean(page, first.url)

    see_a_migration(page, cluster, heir)
    assert_clean(page, first.url)


def see_a_migration(page: Page, cluster: Cluster, server: ServerProcess) -> None:
    """Progress, failures and the end of a migration, and persisted versions after it."""
    body = {
        "metadata": {"name": "widgets-1"},
        "spec": {"resource": {"group": "example.com", "version": "v2", "resource": "widgets"}},
    }
    request = call(server, "POST", MIGRATIONS, body)
    page.wait("document.querySelector('#migrations-table tbody tr')", "the migration is shown")
    assert page.text("#migrations-table .badge") == "pending"

    write_status(cluster, request, running(request, scanned=400, remaining=600))
    page.wait("document.querySelector('#migrations progress').value === 0.4", "it is at 40 %")
    _, state, progress, rate, left, failed, _ = page.texts("#migrations-table tbody tr > *")
    assert state.split("\n") == ["running", "", "MigrationRunning: so far, so good"]
    assert "40 %, 400 of 1,000 scanned, 300 rewritten" in progress
    assert (rate, left, failed) == ("125/s", "5 s", "2")
    page.click("#migrations-table summary")
    assert page.texts(".failures li") == [f"default/{HOSTILE}: Invalid, no such field"]
    assert page.evaluate("document.images.length") == 1, "a name has become markup"
    assert row_of(page, WIDGETS_NAME)["Migration"] == "running 40 %"
    assert "1 migration running" in page.text("#verdict")

    write_status(cluster, request, running(request, scanned=900, remaining=100))
    page.wait("document.querySelector('#migrations progress').value === 0.9", "it is at 90 %")
    assert page.evaluate("document.querySelector('#migrations details').open"), "it was opened"

    write_status(cluster, request, ended(request))
    page.wait(
        "document.querySelector('#migrations-table .badge').textContent === 'succeeded'", "done"
    )
    passes = [call(server, "POST", f"{MIGRATIONS}/widgets-1/rewrite", {}) for _ in range(2)]
    assert passes[-1]["verified"] is True
    wait_verdict(page, "All servers agree on all 6")
    assert row_of(page, WIDGETS_NAME)["May be stored"] == "v2"
    assert story(page)[-2:] == [
        "widgets.example.com: migration succeeded",
        "widgets.example.com: only v2 is stored",
    ]


def running(request: Any, *, scanned: int, remaining: int) -> dict[str, Any]:
    return {
        "conditions": [
            {
                "type": "Running",
                "status": "True",
                "lastUpdateTime": request["metadata"]["creationTimestamp"],
                "reason": "MigrationRunning",
                "message": "so far, so good",
            }
        ],
        "progress": {
            "pass": 1,
            "scanned": scanned,
            "rewritten": scanned - 100,
            "unchanged": 98,
            "failed": 2,
            "remaining": remaining,
            "objectsPerSecond": 125,
            "secondsLeft": remaining // 120,
        },
        "failedObjects": [
            {
                "namespace": "default",
                "name": HOSTILE,
                "reason": "Invalid",
                "message": "no such field",
            }
        ],
    }


def ended(request: Any) -> dict[str, Any]:
    condition = running(request, scanned=1, remaining=0)["conditions"][0]
    return {
        "conditions": [
            {**condition, "status": "False"},
            {**condition, "type": "Succeeded", "reason": "MigrationProven"},
        ],
        "progress": {"pass": 2, "scanned": 1000, "rewritten": 898, "failed": 0, "remaining": 0},
    }


"""Write the status to storage, since the APIs prune different fields."""


def write_status(cluster: Cluster, request: Any, status: dict[str, Any]) -> None:
    """Put the status below the API, since which fields of it an API keeps is not the page's."""
    metadata = {**request["metadata"], "resourceVersion": ""}
    value = json.dumps({**request, "metadata": metadata, "status": status}).encode() + b"\n"
    key = Key(REQUESTS_ROOT + metadata["name"])

    async def put(storage: Storage) -> Outcome:
        return await storage.commit(Transaction((), (Put(key, value),)))

    cluster.look(put)
