"""Requests that need a running pod, node or service, which fail because nothing runs here.

    log                            204 while the pod has no node, as its log is empty; else as below
    exec, attach, portforward      400 while the pod has no node
    proxy                          of pods, services and nodes, with any method and path

Objects are only stored: there are no real nodes. So no request is ever proxied to an address that a
user has written into an object: the response is 503, after all checks that Kubernetes does before
it connects, with the errors of Kubernetes.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import field_errors, status
from restow.apimachinery.names import GroupKind
from restow.apimachinery.status_error import StatusCause
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.subresource_actions import stored_object
from restow.httpserver.response import HttpResponse
from restow.registry.resource import Object
from restow.request.context import Context
from restow.request.responses import JSON_HEADERS

TEXT_SHOWN_MAX: Final = 253
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_LOG_OPTIONS: Final = GroupKind("", "PodLogOptions")


async def log(server: Server, context: Context) -> HttpResponse:
    """GET of the log of a container."""
    info = context.info
    _check_log_options(context)
    pod = await stored_object(server, resource_of(context), info.namespace, info.name)
    _container(pod, info.parameter("container"))
    if not (pod.get("spec") or {}).get("nodeName"):
        return HttpResponse(204, b"", JSON_HEADERS)
    await _check_node(server, pod)
    raise _nothing_runs(f"pod {info.name} has written no log")


async def connect(server: Server, context: Context) -> HttpResponse:
    """GET or POST of exec, attach or portforward."""
    info = context.info
    pod = await stored_object(server, resource_of(context), info.namespace, info.name)
    if info.subresource != "portforward":
        _container(pod, info.parameter("container"))
    if not (pod.get("spec") or {}).get("nodeName"):
        raise status.bad_request(f"pod {info.name} does not have a host assigned")
    await _check_node(server, pod)
    raise _nothing_runs(f"{info.subresource} of pod {info.name} is not possible")


async def proxy(server: Server, context: Context) -> HttpResponse:
    """Any method, of a pod, a service or a node."""
    info, resource = context.info, resource_of(context)
    name = _name_of(info.name)
    await stored_object(server, resource, info.namespace, name)
    raise _nothing_runs(f"{resource.kind.singular} {name} cannot be reached")


def _name_of(text: str) -> str:
    """The name in `scheme:name:port`, where scheme and port may be missing."""
    parts = text.split(":")
    if len(parts) > 3 or (len(parts) == 3 and parts[0] not in ("", "http", "https")):
        raise status.bad_request(f"invalid proxy request {text[:TEXT_SHOWN_MAX]!r}")
    return parts[1] if len(parts) == 3 else parts[0]


def _container(pod: Object, wanted: str) -> str:
    """The container that a request names, or the default. Raises 400."""
    spec, metadata = pod.get("spec") or {}, pod["metadata"]
    by_list: dict[str, list[Any]] = {
        name: [each.get("name") for each in spec.get(name) or ()] for name in _CONTAINERS
    }
    if wanted:
        if not any(wanted in names for names in by_list.values()):
            raise status.bad_request(
                f"container {wanted[:TEXT_SHOWN_MAX]} is not valid for pod {metadata['name']}"
            )
        return wanted
    chosen = (metadata.get("annotations") or {}).get(_DEFAULT_CONTAINER) or ""
    if chosen and any(chosen in names for names in by_list.values()):
        return str(chosen)
    usual, early = by_list["containers"], by_list["initContainers"]
    if len(usual) == 1:
        return str(usual[0])
    text = f"a container name must be specified for pod {metadata['name']}, choose one of: "
    text += _listed(usual)
    if early:
        text += f" or one of the init containers: {_listed(early)}"
    raise status.bad_request(text)


def _listed(names: list[Any]) -> str:
    return f"[{' '.join(map(str, names))}]"


async def _check_node(server: Server, pod: Object) -> None:
    """Check that the node of a pod exists. Raises 404, with the message of Kubernetes."""
    nodes, name = server.catalog.of_kind("", "Node"), pod["spec"]["nodeName"]
    if nodes is not None:
        try:
            await stored_object(server, nodes, "", name)
        except status.NotFound:
            pods = server.catalog.of_kind("", "Pod")
            assert pods is not None
            raise status.not_found(pods.kind.group_resource, name) from None


def _check_log_options(context: Context) -> None:
    info = context.info
    causes: list[StatusCause] = []
    tail, limit = info.number("tailLines"), info.number("limitBytes")
    since = info.number("sinceSeconds")
    if tail is not None and tail < 0:
        why = "must be greater than or equal to 0"
        causes.append(field_errors.invalid("tailLines", tail, why))
    if limit is not None and limit < 1:
        causes.append(field_errors.invalid("limitBytes", limit, "must be greater than 0"))
    if since is not None and info.parameter("sinceTime"):
        why = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        causes.append(field_errors.forbidden("[]", why))
    elif since is not None and since < 1:
        causes.append(field_errors.invalid("sinceSeconds", since, "must be greater than 0"))
    if info.parameter("stream"):
        causes.append(field_errors.forbidden("stream", "may not be specified"))
    if causes:
        raise status.invalid(_LOG_OPTIONS, info.name, causes)


def _nothing_runs(what: str) -> status.StatusError:
    return status.unavailable(f"{what}: this server only stores objects; there are no kubelets")
