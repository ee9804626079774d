"""Runs the examples with a real server and the official Python client."""

import asyncio
import runpy
from pathlib import Path
from typing import Any

import pytest
import uvloop
from kubernetes import client, config, dynamic

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status import Forbidden, NotFound, ServiceUnavailable
from restow.apiserver.aggregated import AggregatedServer
from restow.apiserver.aggregated_options import AggregatedOptions
from restow.apiserver.options import ServeOptions
from restow.apiserver.server import ApiServer
from restow.client import ApiClient, read_kubeconfig
from restow.storage.drivers import open_storage
from restow.storage.interface import Key

EXAMPLES = Path(__file__).parents[2] / "examples"
WIDGETS = runpy.run_path(str(EXAMPLES / "widgets.py"))["WIDGETS"]
GADGETS = runpy.run_path(str(EXAMPLES / "gadgets.py"))


def use_widgets(kubeconfig: Path) -> dict[str, Any]:
    """Uses both versions as a client does. Blocks."""
    configuration = client.Configuration()
    config.load_kube_config(  # type: ignore[no-untyped-call]
        str(kubeconfig), client_configuration=configuration
    )
    with client.ApiClient(configuration) as api:
        cluster = dynamic.DynamicClient(  # type: ignore[no-untyped-call]
            api, cache_file=str(kubeconfig.parent / "discovery")
        )
        old = cluster.resources.get(api_version="example.com/v1", kind="Widget")
        new = cluster.resources.get(api_version="example.com/v2", kind="Widget")
        body = {
            "apiVersion": "example.com/v2",
            "kind": "Widget",
            "metadata": {"name": "a"},
            "spec": {"size": 3},
        }
        new.create(body=body, namespace="default")
        with pytest.raises(client.ApiException) as refused:
            new.create(
                body={**body, "metadata": {"name": "b"}, "spec": {"size": 0}}, namespace="default"
            )
        return {
            "old": old.get(name="a", namespace="default").to_dict(),
            "new": new.get(name="a", namespace="default").to_dict(),
            "refused": refused.value.status,
        }


def test_widgets(tmp_path: Path) -> None:
    """A declared kind is served in both versions, stored in the selected one, and validated."""
    uvloop.run(serve_widgets(tmp_path))  # the event loop that servers run on


async def serve_widgets(tmp_path: Path) -> None:
    options = ServeOptions(data_dir=tmp_path, port=0, grace_seconds=1)
    server = await ApiServer.start(options, Runtime.system(), kinds=[WIDGETS])
    try:
        seen = await asyncio.to_thread(use_widgets, server.kubeconfig)
    finally:
        await server.stop()
    assert seen["old"]["spec"] == {"width": 3}
    assert seen["new"]["spec"] == {"size": 3}
    assert seen["refused"] == 422
    storage = await open_storage(f"sqlite:{tmp_path / 'store.db'}", Runtime.system())
    stored = await storage.get(Key("/registry/example.com/widgets/default/a"))
    await storage.close()
    assert stored is not None
    assert stored.value.startswith(b'{"kind":"Widget","apiVersion":"example.com/v1"')


def test_gadgets(tmp_path: Path) -> None:
    """A kind declared in Python is served through a main server, and its admission gets the user
    who sent the request to the main server."""
    uvloop.run(serve_gadgets(tmp_path))


async def serve_gadgets(tmp_path: Path) -> None:
    runtime = Runtime.system()
    options = ServeOptions(data_dir=tmp_path / "main", port=0, grace_seconds=1)
    main = await ApiServer.start(options, runtime)
    behind = None
    try:
        serve = ServeOptions(data_dir=tmp_path / "gadgets", port=0, grace_seconds=1)
        behind = await AggregatedServer.start(
            AggregatedOptions(serve=serve, main_kubeconfig=main.kubeconfig),
            runtime,
            kinds=[GADGETS["GADGETS"]],
            admission=[GADGETS["Limits"]()],
        )
        config = await asyncio.to_thread(read_kubeconfig, [main.kubeconfig])
        async with ApiClient.connect(config, runtime=runtime) as api:
            await use_gadgets(api)
    finally:
        if behind is not None:
            await behind.stop()
        await main.stop()


async def use_gadgets(api: ApiClient) -> None:
    """Uses the kind through the main server, as a client does."""
    gadgets = GroupVersionResource("gadgets.example.com", "v1", "gadgets")
    body = {
        "apiVersion": "gadgets.example.com/v1",
        "kind": "Gadget",
        "metadata": {"name": "a"},
        "spec": {"level": 3},
    }
    async with asyncio.timeout(30):
        while True:  # it was just registered
            try:
                await api.create(gadgets, body, namespace="default")
                break
            except (NotFound, ServiceUnavailable):
                await api.runtime.clock.sleep(0.1)
    found = await api.get(gadgets, "a", namespace="default")
    assert found["spec"] == {"level": 3}
    with pytest.raises(Forbidden, match="restow-admin may not create gadgets above level 9"):
        await api.update(gadgets, {**found, "spec": {"level": 10}}, namespace="default")
