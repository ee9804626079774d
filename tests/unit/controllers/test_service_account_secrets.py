"""Token Secrets are filled, and deleted with their service account."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from restow.controllers.corrections import AT_ONCE_MAX
from restow.controllers.objects_watch import RESYNC_SECONDS
from restow.controllers.service_account_secrets import (
    ACCOUNT_NAME,
    ACCOUNT_UID,
    TYPE,
    ServiceAccountSecretController,
)
from tests.unit.controllers.world import Observed, World, open_world


async def begin(world: World) -> tuple[ServiceAccountSecretController, Observed]:
    controller = ServiceAccountSecretController(
        world.store,
        world.catalog,
        world.runtime,
        certificates="ca",
        sign=lambda namespace, account, secret: f"{namespace} {account[0]} {secret}",
    )
    return controller, await world.observe(controller)


async def secret_of(world: World, name: str, account: str, **more: str) -> None:
    await world.create(
        "Secret",
        name,
        "n",
        type=TYPE,
        metadata={"annotations": {ACCOUNT_NAME: account, **more}},
    )


async def data_of(world: World, path: str) -> dict[str, str]:
    found: dict[str, Any] | None = await world.get("Secret", path)
    assert found is not None
    return {name: b64decode(text).decode() for name, text in (found.get("data") or {}).items()}


async def test_secrets_are_filled() -> None:
    """A Secret of a service account gets a token, once, and the UID; others are not changed."""
    async with open_world() as world:
        await world.create("Namespace", "n")
        await world.create("ServiceAccount", "a", "n")
        await secret_of(world, "old", "a")
        controller, observed = await begin(world)
        await secret_of(world, "new", "a")
        await world.create("Secret", "plain", "n")
        await observed.settle(controller.queue, controller.reconcile)
        for name in ("old", "new"):
            wanted = {"token": f"n a {name}", "namespace": "n", "ca.crt": "ca"}
            assert await data_of(world, f"n/{name}") == wanted
        account, secret = (
            await world.get("ServiceAccount", "n/a"),
            await world.get("Secret", "n/new"),
        )
        assert account is not None
        assert secret is not None
        assert secret["metadata"]["annotations"][ACCOUNT_UID] == account["metadata"]["uid"]
        assert await data_of(world, "n/plain") == {}
        revision = await world.storage.revision()
        await controller.resync()
        await observed.settle(controller.queue, controller.reconcile)
        assert await world.storage.revision() == revision, "a resync writes nothing"


async def test_a_token_that_is_there_stays() -> None:
    """Other changed fields are corrected, and the token stays the same."""
    async with open_world() as world:
        await world.create("Namespace", "n")
        await world.create("ServiceAccount", "a", "n")
        controller, observed = await begin(world)
        await secret_of(world, "s", "a")
        await observed.settle(controller.queue, controller.reconcile)
        await world.edit("Secret", "n/s", lambda obj: obj.update(data={"token": "bWluZQ=="}))
        controller.take_certificates("newer")
        await observed.settle(controller.queue, controller.reconcile)
        wanted = {"token": "mine", "namespace": "n", "ca.crt": "newer"}
        assert await data_of(world, "n/s") == wanted


async def test_secrets_go_with_their_account() -> None:
    """A Secret of a service account that does not exist, or was recreated, is deleted."""
    async with open_world() as world:
        await world.create("Namespace", "n")
        await world.create("ServiceAccount", "a", "n")
        await world.create("ServiceAccount", "b", "n")
        controller, observed = await begin(world)
        await secret_of(world, "s", "a")
        await secret_of(world, "kept", "b")
        await secret_of(world, "nobody", "c")
        await secret_of(world, "another", "b", **{ACCOUNT_UID: "of-before"})
        await observed.settle(controller.queue, controller.reconcile)
        assert await world.has("Secret", "n/s")
        assert not await world.has("Secret", "n/nobody")
        assert not await world.has("Secret", "n/another")
        await world.delete("ServiceAccount", "n/a")
        await observed.settle(controller.queue, controller.reconcile)
        assert not await world.has("Secret", "n/s")
        assert await world.has("Secret", "n/kept")


async def test_repeated_corrections_of_the_secret_back_off() -> None:
    """Corrections of a Secret that another controller changes become less frequent."""
    async with open_world() as world:
        await world.create("Namespace", "n")
        await world.create("ServiceAccount", "a", "n")
        controller, observed = await begin(world)
        await secret_of(world, "s", "a")
        await observed.settle(controller.queue, controller.reconcile)

        def change(obj: dict[str, Any]) -> None:
            obj["data"]["ca.crt"] = b64encode(b"other").decode()

        answers = 0
        for _ in range(50):
            await world.edit("Secret", "n/s", change)
            await observed.settle(controller.queue, controller.reconcile)
            answers += (await data_of(world, "n/s"))["ca.crt"] == "ca"
        assert answers == AT_ONCE_MAX
        await world.clock.advance(RESYNC_SECONDS)
        await observed.settle(controller.queue, controller.reconcile)
        assert (await data_of(world, "n/s"))["ca.crt"] == "ca", "the last write is ours"
