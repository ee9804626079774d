"""A program with kr8s, run in a process of its own: it prints the checks that have passed.

python -m tests.e2e.clients.kr8s_program KUBECONFIG NAMESPACE GROUP

kr8s keeps a thread with an event loop, and connections that it never closes; both end with the
process. The kind Widget of the group exists already. Not here: its identity and permissions.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

# Its objects have dynamic attributes, so this module uses it untyped.
kr8s: Final[Any] = importlib.import_module("kr8s")
objects: Final[Any] = importlib.import_module("kr8s.objects")
async_objects: Final[Any] = importlib.import_module("kr8s.asyncio.objects")

PAGE: Final = 100
"""The page size of kr8s."""
SECONDS_MAX: Final = 30


@contextmanager
def refused(code: int, words: str) -> Iterator[None]:
    """The block is refused by the server, with this code and message."""
    said = None
    try:
        yield
    except kr8s.ServerError as error:
        said = (error.response.status_code, str(error))
    assert said is not None, f"not refused: {words}"
    assert said[0] == code, said
    assert words in said[1], said


def config(api: Any, name: str, **data: str) -> Any:
    return objects.ConfigMap({"metadata": {"name": name}, "data": data}, api=api)


def one_object(api: Any, namespace: str) -> None:
    """An object is created, found, refreshed, patched, labelled, annotated and deleted."""
    one = config(api, "one", a="1")
    assert not one.exists()
    one.create()
    assert one.exists()
    assert one.namespace == namespace
    other = objects.ConfigMap.get("one", api=api)
    other.patch({"data": {"b": "2"}})
    one.refresh()
    assert one.data.to_dict() == {"a": "1", "b": "2"}
    one.patch([{"op": "remove", "path": "/data/a"}], type="json")
    assert one.data.to_dict() == {"b": "2"}
    one.label(tier="front")
    one.annotate(note="x")
    assert (one.labels["tier"], one.annotations["note"]) == ("front", "x")
    one.remove_label("tier")
    assert "tier" not in one.labels
    one.delete()
    one.wait("delete")
    try:
        objects.ConfigMap.get("one", api=api, timeout=0)
    except kr8s.NotFoundError:
        return
    raise AssertionError("it is still there")


def lists(api: Any, namespace: str) -> None:
    """Lists follow all pages, and are filtered by labels and fields."""
    names = [f"c{number:03}" for number in range(PAGE + 3)]
    api.create([config(api, name) for name in names])
    found = [each.name for each in api.get("configmaps", namespace=namespace)]
    assert [name for name in found if name.startswith("c")] == names
    objects.ConfigMap.get("c007", api=api).label(tier="front")
    chosen = {"label_selector": {"tier": "front"}, "namespace": namespace}
    assert [each.name for each in api.get("cm", **chosen)] == ["c007"]
    fields = {"field_selector": "metadata.name=c008", "namespace": namespace}
    assert [each.name for each in api.get("ConfigMap", **fields)] == ["c008"]


def errors(api: Any, _: str) -> None:
    """A refusal raises an error with the server's message."""
    twice = config(api, "twice")
    twice.create()
    with refused(409, 'configmaps "twice" already exists'):
        twice.create()
    with refused(422, "metadata.name: Invalid value"):
        config(api, "NO").create()
    with refused(403, "secrets is forbidden"):
        list(api.get("secrets"))


def watch(api: Any, namespace: str) -> None:
    """A watch shows existing objects, then changes."""
    config(api, "watched").create()
    seen = []
    for change, each in api.watch("configmaps", namespace=namespace):
        if each.name != "watched":
            continue
        seen.append(change)
        if change == "ADDED":
            each.patch({"data": {"a": "1"}})
        elif change == "MODIFIED":
            each.delete()
        else:
            break
    assert seen == ["ADDED", "MODIFIED", "DELETED"], seen


def workloads(api: Any, _: str) -> None:
    """A deployment is scaled, and a wait for its conditions ends."""
    pod = {"containers": [{"name": "web", "image": "nginx"}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    web = objects.Deployment({"metadata": {"name": "web"}, "spec": spec}, api=api)
    web.create()
    web.patch({"spec": {"replicas": 3}}, subresource="scale")
    web.refresh()
    assert web.replicas == 3
    condition = {"type": "Available", "status": "True"}
    web.patch({"status": {"conditions": [condition]}}, subresource="status")
    web.wait("condition=Available", timeout=SECONDS_MAX)


def custom_resource(api: Any, namespace: str, group: str) -> None:
    """A class defined for a custom kind works like the others, and so does one found by
    discovery."""
    widgets = objects.new_class("Widget", f"{group}/v1", namespaced=True)
    made = widgets({"metadata": {"name": "a"}, "spec": {"size": 1}}, api=api)
    made.create()
    assert made.spec.to_dict() == {"size": 1, "colour": "grey"}
    made.patch({"status": {"phase": "ready"}}, subresource="status")
    (found,) = api.get(f"widgets.{group}", namespace=namespace)
    assert (found.name, found.status.phase) == ("a", "ready")
    with refused(422, "spec.size: Invalid value: -1"):
        made.patch({"spec": {"size": -1}})


def discovery(api: Any, _: str, group: str) -> None:
    """It shows its user, the server's version, and the kinds."""
    assert api.whoami() == "system:serviceaccount:kube-system:kr8s"
    assert api.version()["gitVersion"].startswith("v1.36.")
    kinds = {(each["version"], each["kind"]) for each in api.api_resources()}
    assert {("v1", "ConfigMap"), ("apps/v1", "Deployment"), (f"{group}/v1", "Widget")} <= kinds
    assert api.lookup_kind("deploy") == ("deployment.apps/v1", "deployments", True)


async def with_asyncio(kubeconfig: str, namespace: str) -> None:
    """The asyncio variant creates, lists, patches, watches and deletes."""
    api = await kr8s.asyncio.api(kubeconfig=kubeconfig)
    body = {"metadata": {"name": "later"}, "data": {"a": "1"}}
    later = await async_objects.ConfigMap(body, api=api)
    await later.create()
    await later.patch({"data": {"b": "2"}})
    assert later.data.to_dict() == {"a": "1", "b": "2"}
    assert "later" in [each.name async for each in api.get("configmaps", namespace=namespace)]
    await later.delete()
    async for change, _ in later.watch():  # since the last read
        assert change == "DELETED"
        break
    assert not await later.exists()


def main(kubeconfig: str, namespace: str, group: str) -> None:
    api = kr8s.api(kubeconfig=kubeconfig)
    for check in (one_object, lists, errors, watch, workloads):
        check(api, namespace)
        print(f"ok {check.__name__}", flush=True)  # noqa: T201
    for check_of_kind in (custom_resource, discovery):
        check_of_kind(api, namespace, group)
        print(f"ok {check_of_kind.__name__}", flush=True)  # noqa: T201
    asyncio.run(with_asyncio(kubeconfig, namespace))
    print("ok with_asyncio", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
