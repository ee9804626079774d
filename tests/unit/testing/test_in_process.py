"""The in-process server, as used in tests of custom kinds."""

from pathlib import Path

from examples.widgets import WIDGETS
from restow.client import GroupVersionResource
from restow.testing.in_process import running_server


async def test_a_kind_of_ones_own_is_served_and_converted(tmp_path: Path) -> None:
    """An object written in one version is read in the other, by a real client over TLS."""
    old = GroupVersionResource("example.com", "v1", "widgets")
    new = GroupVersionResource("example.com", "v2", "widgets")
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
        "spec": {"width": 3},
    }
    async with running_server(tmp_path / "data", kinds=[WIDGETS]) as server:
        await server.client.create(old, widget, namespace="default")
        read = await server.client.get(new, "a", namespace="default")
        assert read["spec"] == {"size": 3}
        assert server.kubeconfig.is_file()
