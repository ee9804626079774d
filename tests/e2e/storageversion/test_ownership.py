"""Clients cannot write the records that servers own."""

from __future__ import annotations

import json

from tests.e2e.storageversion.clusters import (
    LEASES,
    REPORTS,
    V1,
    V2,
    WIDGETS_NAME,
    Cluster,
    call,
    common,
    entries,
)
from tests.support.server_process import ServerProcess

MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}


def test_clients_cannot_write_server_owned_records(cluster: Cluster) -> None:
    """Writes of entries, common versions and identity leases are refused to the administrator
    too, and change nothing; other leases and labels may be written."""
    [server] = cluster.start("x+1")
    server_id = cluster.id_of(server)
    path, lease = f"{REPORTS}/{WIDGETS_NAME}", f"{LEASES}/{server_id}"
    found, held = call(server, "GET", path), call(server, "GET", lease)
    [entry] = found["status"]["storageVersions"]
    forged = {
        **found["status"],
        "storageVersions": [{**entry, "encodingVersion": V2}],
        "commonEncodingVersion": V2,
    }
    refuse(server, "PATCH", f"{path}/status", {"status": forged}, MERGE_PATCH)
    refuse(server, "PUT", f"{path}/status", {**found, "status": forged})
    refuse(server, "PUT", f"{path}/status", {**found, "status": {}})
    wrong = {**found["status"], "commonEncodingVersion": V2}
    assert server.request("PUT", f"{path}/status", {**found, "status": wrong})[0] == 422
    call(server, "PUT", path, {**found, "status": forged})  # the status is not written there
    made_up = {"metadata": {"name": "example.com.gadgets"}, "status": forged}
    # Checked in the response: an object without entries is garbage collected at once.
    assert call(server, "POST", REPORTS, made_up)["status"] == {}
    refuse(server, "DELETE", path)
    refuse(server, "DELETE", REPORTS)
    refuse(server, "PATCH", lease, {"spec": {"leaseDurationSeconds": 9}}, MERGE_PATCH)
    refuse(server, "PATCH", lease, {"metadata": {"labels": None}}, MERGE_PATCH)
    refuse(server, "PUT", lease, held)
    refuse(server, "DELETE", lease)
    labels = held["metadata"]["labels"]
    refuse(server, "POST", LEASES, {"metadata": {"name": "apiserver-made-up", "labels": labels}})
    assert common(server) == V1
    assert entries(server) == {server_id: V1}
    assert cluster.identity_leases() == {server_id}

    call(server, "POST", LEASES, {"metadata": {"name": "some-controller"}})
    code, answer = server.request(
        "PATCH", path, {"metadata": {"labels": {"seen": "yes"}}}, headers=MERGE_PATCH
    )
    assert code == 200, answer
    assert common(server) == V1


def refuse(
    server: ServerProcess,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
) -> None:
    code, answer = server.request(method, path, body, headers=headers)
    assert code == 403, f"{method} {path} {body}: {code} {answer}"
    assert json.loads(answer)["reason"] == "Forbidden"
