"""The examples do what they say, with a real server and the official Python client."""

import asyncio
import runpy
from pathlib import Path
from typing import Any

import pytest
import uvloop
from kubernetes import client, config, dynamic

from restow.apiserver.options import ServeOptions
from restow.apiserver.server import ApiServer
from restow.runtime import Runtime
from restow.storage.interface import Key
from restow.storage.opening import open_storage

WIDGETS = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "widgets.py"))["WIDGETS"]


def use_widgets(kubeconfig: Path) -> dict[str, Any]:
    """What a user of the two versions does and sees. Blocks."""
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
    """A declared kind is served in both versions, stored in the one that was chosen, validated."""
    uvloop.run(serve_widgets(tmp_path))  # the loop that servers run on


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
