"""A real admission webhook that rejects objects while they are migrated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.admission_webhook import AdmissionWebhook, allow, deny
from tests.unit.migration.migrator.patch_rig import V1, V2, Rig, running, totals, whole

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MIGRATIONS = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"


async def reject_one(rig: Rig, webhook: AdmissionWebhook, name: str) -> None:
    """Makes the webhook reject all further updates of one object."""

    def respond(request: dict[str, Any]) -> Any:
        refuse = deny("it is frozen", code=403, reason="Forbidden")
        return refuse(request) if request["name"] == name else allow(request)

    webhook.respond = respond
    rule = {
        "operations": ["UPDATE"],
        "apiGroups": ["example.com"],
        "apiVersions": ["*"],
        "resources": ["widgets"],
    }
    hook = webhook.hook("freezer.example.com", rules=[rule])
    body = {"metadata": {"name": "freezer"}, "webhooks": [hook]}
    assert (await rig.server.client.post(CONFIGURATIONS, body)).status == 201


async def test_a_rejecting_webhook_stops_only_its_own_object(tmp_path: Path) -> None:
    """The patches of a migration call webhooks. An object that a webhook rejects is reported with
    the
    webhook's name and message; all others are migrated. Once allowed, it is migrated too."""
    webhook = await AdmissionWebhook.start(tmp_path)
    try:
        async with running(25) as rig:
            await reject_one(rig, webhook, "w004")
            pages = await whole(rig.patching())
            assert totals(pages) == (24, 0, 0, 1)
            [failure] = pages[0].failures
            assert (failure.namespace, failure.name) == ("default", "w004")
            assert failure.reason == "Forbidden"
            expected = 'admission webhook "freezer.example.com" denied the request: it is frozen'
            assert failure.message == expected
            assert await rig.versions() == {V1: 1, V2: 24}
            webhook.respond = allow
            assert totals(await whole(rig.patching())) == (1, 24, 0, 0)
            assert await rig.versions() == {V2: 25}
    finally:
        await webhook.stop()


async def test_the_server_s_own_rewrite_calls_no_webhook(tmp_path: Path) -> None:
    """A rewrite changes only the version in which the object is encoded."""
    webhook = await AdmissionWebhook.start(tmp_path)
    try:
        async with running(5) as rig:
            await reject_one(rig, webhook, "w004")
            api = rig.server.client
            resource = {"group": "example.com", "version": "v2", "resource": "widgets"}
            body = {"metadata": {"name": "m"}, "spec": {"resource": resource}}
            assert (await api.post(MIGRATIONS, body)).status == 201
            reply = await api.post(f"{MIGRATIONS}/m/rewrite", {})
            assert (reply.status, reply.json["scanned"]) == (200, 5)
            assert webhook.requests == []
            assert await rig.versions() == {V2: 5}
    finally:
        await webhook.stop()
