"""The modules of the page one by one, in the browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from tests.e2e.dashboard.browser import Browser, Page
from tests.e2e.dashboard.conftest import NewCluster

# A server with responses set by a test: one list of lines for each connection.
FEED: Final = """
  const { Channel, Feed } = await import("/dashboard/static/js/feed.js");
  const requested = [];
  const answers = ANSWERS;
  const real = window.fetch;
  window.fetch = async (url) => {
    requested.push(new URL(url, location).searchParams.getAll("watch"));
    const lines = answers.shift();
    if (lines === undefined) return new Promise(() => undefined);
    if (typeof lines === "number") return new Response("", { status: lines });
    return new Response(lines.map((each) => `${each[0]} ${JSON.stringify(each[1])}\\n`).join(""));
  };
  const events = [];
  const channels = [new Channel("one", "/apis/one"), new Channel("two", "/apis/two")];
  const ended = new Promise((resolve) => {
    const feed = new Feed(channels, {
      changed: (channel, type, object) => events.push([channel.name, type, object.metadata.uid]),
      synced: (channel) => events.push([channel.name, "SYNCED", ""]),
      state: (name) => { if (!answers.length && name !== "reconnecting") setTimeout(resolve, 50); },
      denied: () => { events.push(["", "DENIED", ""]); resolve(); },
    });
    feed.pause = async () => events.push(["", "PAUSED", ""]);
    feed.run();
  });
  await ended;
  window.fetch = real;
  return { events, requested };
"""


@pytest.fixture(scope="module")
def page(one_browser: Browser, new_cluster: NewCluster) -> Iterator[Page]:
    """The page of a server, not signed in: its modules can be loaded nevertheless."""
    server = new_cluster().start("x")[0]
    made = one_browser.page()
    made.goto(f"{server.url}/dashboard")
    yield made
    one_browser.close_pages()


def run(page: Page, body: str) -> Any:
    """The value that the body of an async function returns in the page."""
    return page.evaluate(f"(async () => {{ {body} }})()")


def feed(page: Page, *answers: Any) -> tuple[list[str], list[list[str]]]:
    """The events of a feed over these connections, and the watches requested in each."""
    found = run(page, FEED.replace("ANSWERS", json.dumps(answers)))
    return [" ".join(each).strip() for each in found["events"]], found["requested"]


def added(uid: str, version: int, kind: str = "ADDED") -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"uid": uid, "resourceVersion": str(version)}}}


def bookmark(version: int, *, is_end: bool = True) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if is_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return {"type": "BOOKMARK", "object": {"metadata": metadata}}


def error(code: int) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code}}


END: Final = {"type": "END"}
INITIAL: Final = [
    [0, added("a", 5)],
    [0, added("b", 3)],
    [0, bookmark(9)],
    [1, bookmark(9)],
]
INITIAL_EVENTS: Final = ["one PRESENT a", "one PRESENT b", "one SYNCED", "two SYNCED"]


def test_hashes_match_the_servers(page: Page) -> None:
    """The page computes the same hash of a version as servers."""
    for kind in (
        GroupVersionKind("example.com", "v1", "Widget"),
        GroupVersionKind("", "v1", "Pod"),
    ):
        text = f"{kind.group}/{kind.version}/{kind.kind}"
        script = (
            "const { hashOf } = await import('/dashboard/static/js/hashes.js');"
            f"return hashOf({json.dumps(text)});"
        )
        assert run(page, script) == storage_version_hash(kind)


def test_a_feed_resumes(page: Page) -> None:
    """After a disconnect a watch resumes at the last version, and does not list again."""
    events, requested = feed(
        page, [*INITIAL, [0, added("c", 12)], [1, bookmark(14, is_end=False)]], []
    )
    assert events == [*INITIAL_EVENTS, "one PRESENT c", "PAUSED", "PAUSED"]
    assert all("sendInitialEvents=true" in each for each in requested[0])
    assert ["resourceVersion=12" in requested[1][0], "resourceVersion=14" in requested[1][1]] == [
        True,
        True,
    ]
    assert all("sendInitialEvents" not in each for each in requested[1])


def test_a_disconnect_during_initial_objects_lists_again(page: Page) -> None:
    """The versions of incomplete initial objects cannot be resumed from."""
    events, requested = feed(page, INITIAL[:2], INITIAL)
    assert events == ["one PRESENT a", "one PRESENT b", "PAUSED", *INITIAL_EVENTS, "PAUSED"]
    assert all("sendInitialEvents=true" in each for each in requested[1])


def test_an_expired_version_lists_again(page: Page) -> None:
    """On a 410 everything is listed again, at once, and missing objects are reported as deleted."""
    again = [[0, added("b", 21)], [0, bookmark(30)]]
    events, requested = feed(page, INITIAL, [[0, error(410)], [0, END]], again)
    assert events == [
        *INITIAL_EVENTS,
        "PAUSED",
        "one PRESENT b",
        "one DELETED a",
        "one SYNCED",
        "PAUSED",
    ]
    assert ["sendInitialEvents" in each for each in requested[2]] == [True, False]


def test_a_watch_that_times_out_is_reopened_at_once(page: Page) -> None:
    """The end of a watch is not a failure, so there is no delay after it."""
    events, requested = feed(page, [*INITIAL, [1, END]], [])
    assert events == [*INITIAL_EVENTS, "PAUSED"]
    assert "resourceVersion=9" in requested[1][0]


def test_resources_that_are_not_served_are_left_out(page: Page) -> None:
    """A resource that is not served is not requested again, and the others are shown."""
    events, requested = feed(page, [[1, error(404)], [1, END], *INITIAL[:3]], [])
    assert events == ["two SYNCED", *INITIAL_EVENTS[:3], "PAUSED", "PAUSED"]
    assert len(requested[1]) == 1


@pytest.mark.parametrize("refusal", [401, 403])
def test_unauthorized_users_are_notified(page: Page, refusal: int) -> None:
    """A 401 or 403 of one watch or of all ends the feed instead of retrying for ever."""
    assert feed(page, [[0, error(refusal)]])[0] == ["DENIED"]
    assert feed(page, refusal)[0] == ["DENIED"]


def test_other_errors_are_retried(page: Page) -> None:
    """After any other response the feed waits, then retries."""
    assert feed(page, 503, 500, INITIAL)[0] == ["PAUSED", "PAUSED", *INITIAL_EVENTS, "PAUSED"]


def test_malformed_objects_are_tolerated(page: Page) -> None:
    """No field of an object is assumed to have the right type."""
    script = """
      const { readMigration, Model, assess } = await import("/dashboard/static/js/model.js");
      const strange = [null, 7, "text", true, [], {}, [null], { conditions: 7 }];
      for (const value of strange) {
        readMigration({ metadata: { name: "m" }, spec: { resource: value }, status: value });
        const status = { conditions: value, progress: value, failedObjects: value };
        readMigration({ metadata: { name: "m", annotations: value }, spec: value, status });
        const model = new Model({ nameOf: () => null });
        const metadata = { name: "core.pods", uid: "1", annotations: value };
        const take = (name, rest) => model.take({ name }, "PRESENT", { metadata, ...rest });
        take("reports", { status: value });
        take("reports", { status: { storageVersions: value, conditions: value } });
        take("states", { spec: value, status: value });
        take("leases", { spec: value });
        take("events", { involvedObject: value, message: value });
        for (const resource of model.resources.values()) assess(model, resource);
        model.serverList();
        model.timeline.recent(10);
      }
      return "fine";
    """
    assert run(page, script) == "fine"


def test_equal_changes_are_merged(page: Page) -> None:
    """Equal changes at the same time are one entry; a different one in between is not lost."""
    script = """
      const { Timeline } = await import("/dashboard/static/js/timeline.js");
      const timeline = new Timeline();
      for (let each = 0; each < 20; each += 1) {
        timeline.agreed(`core.r${String(each).padStart(2, "0")}`, "2", "v2", ["v2"], 1000 + each);
      }
      timeline.agreed("core.pods", "3", "", ["v1", "v2"], 9000);
      timeline.agreed("core.pods", "3", "", ["v1", "v2"], 9500);
      return timeline.recent(10).map((entry) => entry.text);
    """
    assert run(page, script) == [
        "pods: servers write v1 and v2",
        "20 resources: all servers write v2 (r19, r18, r17 and 17 more)",
    ]


def test_agreement_is_ordered_by_epoch(page: Page) -> None:
    """The time of an Event is truncated to a second, which may be before a live change of that
    second."""
    script = """
      const { Timeline } = await import("/dashboard/static/js/timeline.js");
      const events = (...seen) => {
        const timeline = new Timeline();
        for (const [epoch, version, at] of seen) {
          timeline.agreed("core.pods", epoch, version, ["v1", "v2"], at);
        }
        return timeline.recent(10).map((entry) => entry.how);
      };
      return [
        events(["2", "", 5300], ["3", "v2", 5000]),
        events(["3", "v2", 5000], ["2", "", 5300]),
        events(["2", "", 5300], ["4", "v3", 5000], ["3", "v2", 6000]),
      ];
    """
    assert run(page, script) == [
        ["all servers write v2", "servers write v1 and v2"],
        ["all servers write v2", "servers write v1 and v2"],
        ["all servers write v3", "all servers write v2", "servers write v1 and v2"],
    ]


def test_durations(page: Page) -> None:
    """A duration has its two largest units, without those that are zero."""
    script = """
      const { duration } = await import("/dashboard/static/js/format.js");
      return [0, 59.4, 60, 200, 3600, 7500, 90000].map(duration);
    """
    found = ["0 s", "59 s", "1 min", "3 min 20 s", "1 h", "2 h 5 min", "1 d 1 h"]
    assert run(page, script) == found


# Two servers; the keys of secrets that each reports, and those in the StorageState.
KEYS_OF: Final = """
  const { Model, assess } = await import("/dashboard/static/js/model.js");
  const own = "coordination.restow.dev/";
  const modelOf = (secrets) => {
    const model = new Model({ nameOf: () => "v1" });
    for (const id of ["a", "b"]) {
      const annotations = { [`${own}address`]: `127.0.0.1:${id === "a" ? 1 : 2}` };
      model.take({ name: "leases" }, "PRESENT", { metadata: { name: id, uid: id, annotations } });
    }
    for (const [resource, said] of Object.entries({ secrets, pods: {} })) {
      const annotations = {};
      for (const [name, value] of Object.entries(said.keys ?? {})) {
        annotations[own + name] = JSON.stringify(value);
      }
      const storageVersions = ["a", "b"].map((apiServerID) => (
        { apiServerID, encodingVersion: "v1", decodableVersions: ["v1"] }));
      const conditions = said.reason
        ? [{ type: "AllEncryptionKeysEqual", status: "False", reason: said.reason, message: "" }]
        : [];
      model.take({ name: "reports" }, "PRESENT", {
        metadata: { name: `core.${resource}`, uid: `r ${resource}`, annotations },
        status: { storageVersions, commonEncodingVersion: "v1", conditions },
      });
      model.take({ name: "states" }, "PRESENT", {
        metadata: { name: resource, uid: `s ${resource}` },
        spec: { resource: { resource } },
        status: { persistedStorageVersionHashes: ["h"], persistedEncryptionKeys: said.stored },
      });
    }
    return model;
  };
  const [k1, k2] = ["aesgcm:key1:11", "aesgcm:key2:22"];
  const plain = {};
  const calm = { keys: { "encryption-keys": { a: k1, b: k1 } }, stored: [k1] };
  const left = { keys: { "encryption-keys": { a: k2, b: k2 } }, stored: [k1, k2] };
  const split = {
    keys: { "encryption-keys": { a: k1, b: k2 } }, stored: [k1, k2],
    reason: "CommonEncryptionKeyUnset",
  };
  const pending = {
    keys: {
      "encryption-keys": { a: k1, b: k1 },
      "preferred-encryption-keys": { a: k2 },
      "readable-encryption-keys": { a: [k1, k2], b: [k1] },
    },
    stored: [k1],
    reason: "EncryptionKeyPending",
  };
"""
DRAWN: Final = """
  const { Matrix } = await import("/dashboard/static/js/views/matrix.js");
  const { drawSummary } = await import("/dashboard/static/js/views/summary.js");
  document.getElementById("main").hidden = false;
  const drawn = (said) => {
    const table = document.getElementById("matrix");
    table.tHead.replaceChildren();
    table.tBodies[0].replaceChildren();
    const model = modelOf(said);
    new Matrix(model).draw();
    drawSummary(model);
    const cell = table.querySelector('tr[data-resource="core.secrets"] .key');
    return {
      columns: [...table.tHead.rows[0].cells].map((each) => each.firstChild.textContent),
      agreed: table.querySelector('tr[data-resource="core.secrets"] .agreed').textContent,
      chips: [...(cell?.children ?? [])].map((each) => `${each.className}: ${each.textContent}`),
      titles: [...(cell?.children ?? [])].map((each) => each.title),
      verdict: document.getElementById("verdict").textContent,
    };
  };
"""


def test_keys_are_assessed_like_versions(page: Page) -> None:
    """Different keys are a disagreement, older keys are to be migrated, a pending key is neither;
    nothing is shown if nothing is encrypted."""
    script = """
      const found = (said) => {
        const model = modelOf(said);
        const { keysDiffer, isStale, keys } = assess(model, model.resources.get("core.secrets"));
        return [model.isEncrypted, keysDiffer, isStale, keys?.lacking.map(({ id }) => id) ?? null];
      };
      return [plain, calm, left, split, pending].map(found);
    """
    assert run(page, KEYS_OF + script) == [
        [False, False, False, None],
        [True, False, False, []],
        [True, False, True, []],
        [True, True, False, []],
        [True, False, False, ["b"]],
    ]


def test_keys_are_rendered(page: Page) -> None:
    """A column if anything is encrypted: the current key, older keys of stored objects, the pending
    key with the server that blocks it; and the same in the sentence at the top."""
    found = run(page, KEYS_OF + DRAWN + "return [plain, calm, left, split, pending].map(drawn);")
    plain, calm, left, split, pending = found
    assert "Key" not in plain["columns"]
    assert plain["chips"] == []
    assert "Key" in calm["columns"]
    assert calm["chips"] == ["chip current: aesgcm:key1"]
    assert left["chips"] == ["chip current: aesgcm:key2", "chip old: aesgcm:key1"]
    assert "under an older key: secrets" in left["verdict"]
    assert split["agreed"] == "keys differ"
    assert split["chips"] == [
        "chip old: aesgcm:key1 by 127.0.0.1:1",
        "chip old: aesgcm:key2 by 127.0.0.1:2",
    ]
    assert "key aesgcm:key1 by 127.0.0.1:1, key aesgcm:key2 by 127.0.0.1:2" in split["verdict"]
    assert pending["agreed"] == "v1"
    assert pending["chips"] == ["chip current: aesgcm:key1", "chip unknown: aesgcm:key2 pending"]
    assert "127.0.0.1:2 cannot read it" in pending["titles"][1]
    assert "aesgcm:key2 is pending: 127.0.0.1:2 cannot read it" in pending["verdict"]
