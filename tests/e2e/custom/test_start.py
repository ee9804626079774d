"""A starting server serves each custom resource as soon as that resource is registered."""

from __future__ import annotations

from typing import Any, Final

import orjson

from restow.storage.interface import Key, Put, Storage, Transaction
from tests.e2e.custom.stage import definition
from tests.e2e.custom.switching import DEFINITIONS
from tests.e2e.custom.tracing import KIND, PLURAL, Place
from tests.e2e.storageversion.clusters import WIDGETS, call, is_ready, wait_for, widget
from tests.e2e.storageversion.conftest import NewCluster
from tests.support.server_process import ServerProcess

PLACE: Final = Place("start.custom.example.org")
LAMPS: Final = f"/apis/{PLACE.group}/v1/namespaces/default/{PLURAL}"
UNREADABLE: Final = "/registry/example.com/widgets/default/unreadable"


def test_custom_resources_do_not_wait_for_a_built_in_that_cannot_be_registered(
    new_cluster: NewCluster,
) -> None:
    """A single server that cannot read one widget never becomes ready. It serves the custom
    resource that it has registered, for reads and writes; widgets cannot be written."""
    cluster = new_cluster("sqlite")
    [first] = cluster.start("x+1")
    call(first, "POST", DEFINITIONS, definition(PLACE))
    wait_for(lambda: create(first, "before")[0] == 201, "it is served", servers=[first])
    assert first.stop() == 0
    cluster.look(put_unreadable_widget)

    server = cluster.server("x+1")
    server.launch()
    server.wait_listening()
    wait_for(lambda: server.get(LAMPS)[0] == 200, "it is served", servers=[server])

    code, answer = server.get(f"{LAMPS}/before")
    assert (code, name_in(answer)) == (200, "before")
    code, answer = create(server, "after")
    assert code == 201, answer
    assert server.get(f"/apis/{PLACE.group}/v1/namespaces/default/unknown")[0] == 404
    code, answer = server.request("POST", WIDGETS, widget("a"))
    assert code == 503, answer
    assert not is_ready(server)


def create(server: ServerProcess, name: str) -> tuple[int, str]:
    obj = {"apiVersion": f"{PLACE.group}/v1", "kind": KIND, "metadata": {"name": name}}
    return server.request("POST", LAMPS, obj)


def name_in(answer: str) -> Any:
    return orjson.loads(answer)["metadata"]["name"]


async def put_unreadable_widget(storage: Storage) -> None:
    obj = {
        "kind": "Widget",
        "apiVersion": "example.com/v9",
        "metadata": {"name": "unreadable", "namespace": "default"},
    }
    await storage.commit(Transaction((), (Put(Key(UNREADABLE), orjson.dumps(obj)),)))
