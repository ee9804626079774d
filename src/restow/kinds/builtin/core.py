"""The core group, and the events of `events.k8s.io`, which share a store.

Only rows. `restow.kinds.kind` documents the columns.
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.names import GroupKind
from restow.kinds.kind import (
    SCALE,
    STATUS,
    VERBS_ALL,
    VERBS_STATUS,
    SelectableField,
    Subresource,
    declare,
    selectable,
)

_FINALIZE: Final = Subresource(name="finalize", verbs=("update",))
_TOKEN: Final = Subresource(
    name="token",
    verbs=("create",),
    kind="TokenRequest",
    group="authentication.k8s.io",
    version="v1",
)
_EPHEMERAL: Final = Subresource(name="ephemeralcontainers", verbs=VERBS_STATUS)
_RESIZE: Final = Subresource(name="resize", verbs=VERBS_STATUS)
_BINDING: Final = Subresource(name="binding", verbs=("create",), kind="Binding")
_EVICTION: Final = Subresource(
    name="eviction", verbs=("create",), kind="Eviction", group="policy", version="v1"
)
_LOG: Final = Subresource(name="log", verbs=("get",))


# These would connect to a running container; there are none here, so each returns an error.
def _connect(name: str, kind: str) -> Subresource:
    return Subresource(name=name, verbs=("create", "get"), kind=kind)


def _proxy(kind: str) -> Subresource:
    verbs = ("create", "delete", "get", "patch", "update")
    return Subresource(name="proxy", verbs=verbs, kind=kind, takes_path=True)


# A controller empties each namespace, so a collection of them cannot be deleted.
_NAMESPACE_VERBS: Final = tuple(verb for verb in VERBS_ALL if verb != "deletecollection")

_REFERENCE_FIELDS: Final = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)
_EVENT_SOURCE: Final = SelectableField("source", ("source", "component"), ("reportingComponent",))
_EVENT_FIELDS: Final = (
    *selectable(*(f"involvedObject.{name}" for name in _REFERENCE_FIELDS)),
    *selectable("reason", "reportingComponent", "type"),
    _EVENT_SOURCE,
)
# The newer group has its own field labels, and accepts the older ones too.
_REGARDING_FIELDS: Final = (
    *(SelectableField(f"regarding.{name}", ("involvedObject", name)) for name in _REFERENCE_FIELDS),
    SelectableField("reportingController", ("reportingComponent",)),
)
_POD_FIELDS: Final = (
    *selectable(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.nominatedNodeName",
        "status.phase",
        "status.podIP",
    ),
    SelectableField("spec.hostNetwork", ("spec", "hostNetwork"), absent="false"),
)

KINDS: Final = (
    # It is not stored: binding sets a field of the pod.
    declare("", "Binding", verbs=("create",), persisted=False),
    declare(
        "",
        "ComponentStatus",
        "componentstatuses",
        short="cs",
        namespaced=False,
        verbs=("get", "list"),
        persisted=False,
    ),
    declare("", "ConfigMap", short="cm", required=True),
    declare(
        "",
        "Endpoints",
        "endpoints",
        short="ep",
        key_prefix="services/endpoints",
        create_on_update=True,
        required=True,
        deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
    declare(
        "",
        "Event",
        short="ev",
        selectable=_EVENT_FIELDS,
        create_on_update=True,
        follows_owners=False,
        required=True,
    ),
    declare("", "LimitRange", short="limits", create_on_update=True),
    declare(
        "",
        "Namespace",
        short="ns",
        namespaced=False,
        verbs=_NAMESPACE_VERBS,
        subresources=(STATUS, _FINALIZE),
        selectable=selectable("status.phase"),
        returns_deleted=True,
        name_rule="label",
        required=True,
    ),
    declare(
        "",
        "Node",
        short="no",
        namespaced=False,
        key_prefix="minions",
        create_keeps_status=True,
        subresources=(STATUS, _proxy("NodeProxyOptions")),
        selectable=(
            SelectableField("spec.unschedulable", ("spec", "unschedulable"), absent="false"),
        ),
    ),
    declare(
        "",
        "PersistentVolume",
        short="pv",
        namespaced=False,
        subresources=(STATUS,),
        returns_deleted=True,
    ),
    declare("", "PersistentVolumeClaim", short="pvc", subresources=(STATUS,), returns_deleted=True),
    declare(
        "",
        "Pod",
        short="po",
        categories="all",
        subresources=(
            STATUS,
            _connect("attach", "PodAttachOptions"),
            _BINDING,
            _EPHEMERAL,
            _EVICTION,
            _connect("exec", "PodExecOptions"),
            _LOG,
            _connect("portforward", "PodPortForwardOptions"),
            _proxy("PodProxyOptions"),
            _RESIZE,
        ),
        selectable=_POD_FIELDS,
        tracks_generation=True,
        status_keeps=("ownerReferences",),
        is_graceful=True,
        returns_deleted=True,
    ),
    declare("", "PodTemplate", tracks_generation=True, returns_deleted=True),
    declare(
        "",
        "ReplicationController",
        short="rc",
        categories="all",
        key_prefix="controllers",
        subresources=(STATUS, SCALE),
        selectable=(SelectableField("status.replicas", ("status", "replicas"), absent="0"),),
        tracks_generation=True,
        orphans_by_default=True,
    ),
    declare("", "ResourceQuota", short="quota", subresources=(STATUS,), returns_deleted=True),
    declare("", "Secret", selectable=selectable("type"), required=True),
    declare(
        "",
        "Service",
        short="svc",
        categories="all",
        key_prefix="services/specs",
        subresources=(STATUS, _proxy("ServiceProxyOptions")),
        selectable=selectable("spec.clusterIP", "spec.type"),
        create_on_update=True,
        returns_deleted=True,
        name_rule="label",
        required=True,
    ),
    declare(
        "",
        "ServiceAccount",
        short="sa",
        subresources=(_TOKEN,),
        returns_deleted=True,
        required=True,
    ),
    declare(
        "events.k8s.io",
        "Event",
        versions="v1 v1beta1",
        short="ev",
        cohabits_with=GroupKind("", "Event"),
        selectable=(*_EVENT_FIELDS, *_REGARDING_FIELDS),
        create_on_update=True,
        follows_owners=False,
        required=True,
    ),
)
