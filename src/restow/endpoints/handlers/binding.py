"""binding: assigns a pod to a node, for schedulers.

    POST  /api/v1/namespaces/NS/pods/NAME/binding     {"metadata": {"name": NAME},
    POST  /api/v1/namespaces/NS/bindings               "target": {"kind": "Node", "name": …}}

A pod is assigned once; labels and annotations of the binding are added to those of the pod.

    400   the name is missing, or differs from that of the path
    404   the pod does not exist
    409   it is bound already, being deleted, has scheduling gates, or a precondition fails
    422   a target that has no name or is not a node
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from restow.apimachinery import field_errors, status
from restow.apimachinery.names import GroupResource
from restow.endpoints.handlers.conditions import with_condition
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.subresource_actions import SentKind, done
from restow.httpserver.response import HttpResponse
from restow.kinds.validation.pod_parts import BINDING
from restow.registry.resource import Object, Resource
from restow.registry.store import ObjectWriteOptions
from restow.registry.strategy import timestamp
from restow.request.context import Context
from restow.request.parameters import is_dry_run

_SENT: Final = SentKind("", "Binding")
_RESOURCE: Final = GroupResource("", "pods/binding")
_PODS: Final = GroupResource("", "pods")
_TARGETS: Final = ("Node", "<empty>")
_MEANT: Final = {"uid": "UID", "resourceVersion": "ResourceVersion"}
"""The preconditions that a binding can have on its pod."""


async def bind(server: Server, context: Context) -> HttpResponse:
    """POST of a binding, to its pod or to the collection, which stores none."""
    context.request.is_shielded = True
    dry_run = is_dry_run(context.info)
    obj = await _SENT.read(server, context)
    name = obj["metadata"].get("name") or ""
    if not context.info.subresource and not name:
        raise status.bad_request("Name parameter required.")
    if context.info.subresource and name != context.info.name:
        raise status.bad_request("name in URL does not match name in Binding object")
    _check_target(obj, name)
    asked = server.admission.for_request(context, "CREATE")
    if asked is not None:
        obj = await asked.mutate(obj, None, is_dry_run=dry_run)
        _check_target(obj, name)
        await asked.review(obj, None, is_dry_run=dry_run)
    pods = pods_of(server)
    now = timestamp(server.runtime.clock.wall())
    await server.store.update(
        pods,
        "v1",
        pods.path_of(context.info.namespace, name),
        _binding_change(obj, now=now),
        subresource=BINDING,
        is_patch=True,
        # As in Kubernetes: no manager owns the field.
        options=ObjectWriteOptions(manager=None, dry_run=dry_run, retries=context.retries),
    )
    return done(context)


def pods_of(server: Server) -> Resource:
    """The resource of pods. Raises 404 if this server has none."""
    pods = server.catalog.of_kind("", "Pod")
    if pods is None:
        raise status.resource_not_found()
    return pods


def _check_target(obj: Object, name: str) -> None:
    target: dict[str, Any] = obj.get("target") or {}
    causes = []
    if target.get("kind") not in (None, "", "Node"):
        causes.append(field_errors.not_supported("target.kind", target["kind"], _TARGETS))
    if not target.get("name"):
        causes.append(field_errors.required("target.name"))
    if causes:
        raise status.invalid(_SENT.kind.group_kind, name, causes)


def _binding_change(binding: Object, *, now: str) -> Callable[[Object], Object]:
    binding_metadata = binding["metadata"]

    def change(pod: Object) -> Object:
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        name, why = metadata["name"], ""
        for field, what in _MEANT.items():
            if binding_metadata.get(field) and binding_metadata[field] != metadata.get(field):
                raise status.precondition_failed(
                    _PODS,
                    name,
                    what=what,
                    wanted=binding_metadata[field],
                    found=metadata.get(field) or "",
                )
        fresh = dict(metadata)
        if metadata.get("deletionTimestamp"):
            why = f"pod {name} is being deleted, cannot be assigned to a host"
        elif spec.get("nodeName"):
            why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        elif spec.get("schedulingGates"):
            why = f"pod {name} has non-empty .spec.schedulingGates"
        if why:
            raise status.conflict(_RESOURCE, name, why=why)
        for field in ("annotations", "labels"):
            if binding_metadata.get(field):
                fresh[field] = {**(metadata.get(field) or {}), **binding_metadata[field]}
        state = {k: v for k, v in (pod.get("status") or {}).items() if k != "nominatedNodeName"}
        scheduled = {"type": "PodScheduled", "status": "True"}
        return {
            **pod,
            "metadata": fresh,
            "spec": {**spec, "nodeName": binding["target"]["name"]},
            "status": with_condition(state, scheduled, now=now, is_probed=True),
        }

    return change
