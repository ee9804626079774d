"""Network, storage, scheduling, nodes and devices: data for clients that describe a cluster.

Old versions can be decoded, and are served only in a release that enables them.

Only rows. `restow.kinds.kind` documents the columns.
"""

from __future__ import annotations

from typing import Final

from restow.kinds.kind import STATUS, declare

_NETWORKING: Final = "networking.k8s.io"
_STORAGE: Final = "storage.k8s.io"
_RESOURCE: Final = "resource.k8s.io"

KINDS: Final = (
    declare(
        "discovery.k8s.io",
        "EndpointSlice",
        versions="v1 v1beta1",
        tracks_generation=True,
        generation_metadata="labels",
        required=True,
    ),
    declare(
        _NETWORKING,
        "Ingress",
        "ingresses",
        versions="v1 v1beta1",
        short="ing",
        key_prefix="ingress",
        subresources=(STATUS,),
        tracks_generation=True,
    ),
    declare(
        _NETWORKING,
        "IngressClass",
        "ingressclasses",
        versions="v1 v1beta1",
        namespaced=False,
        tracks_generation=True,
    ),
    declare(
        _NETWORKING, "IPAddress", "ipaddresses", versions="v1 v1beta1", short="ip", namespaced=False
    ),
    declare(
        _NETWORKING, "NetworkPolicy", "networkpolicies", short="netpol", tracks_generation=True
    ),
    declare(
        _NETWORKING,
        "ServiceCIDR",
        versions="v1 v1beta1",
        namespaced=False,
        subresources=(STATUS,),
        status_keeps_metadata=True,
    ),
    declare(
        "node.k8s.io",
        "RuntimeClass",
        "runtimeclasses",
        versions="v1 v1beta1",
        namespaced=False,
        unconditional_update=False,
        create_on_update=True,
    ),
    declare(
        "scheduling.k8s.io",
        "PriorityClass",
        "priorityclasses",
        versions="v1 v1beta1",
        short="pc",
        namespaced=False,
        tracks_generation=True,
        generation_is_fixed=True,
    ),
    declare(
        _STORAGE,
        "CSIDriver",
        versions="v1 v1beta1",
        namespaced=False,
        tracks_generation=True,
        generation_first=0,
        unconditional_update=False,
        returns_deleted=True,
    ),
    declare(
        _STORAGE,
        "CSINode",
        versions="v1 v1beta1",
        namespaced=False,
        unconditional_update=False,
        returns_deleted=True,
    ),
    declare(
        _STORAGE,
        "CSIStorageCapacity",
        "csistoragecapacities",
        versions="v1 v1beta1 v1alpha1",
        unconditional_update=False,
    ),
    declare(
        _STORAGE,
        "StorageClass",
        "storageclasses",
        versions="v1 v1beta1",
        short="sc",
        namespaced=False,
        returns_deleted=True,
    ),
    declare(
        _STORAGE,
        "VolumeAttachment",
        versions="v1 v1beta1 v1alpha1",
        namespaced=False,
        subresources=(STATUS,),
        status_keeps_metadata=True,
        unconditional_update=False,
        returns_deleted=True,
    ),
    declare(
        _STORAGE,
        "VolumeAttributesClass",
        "volumeattributesclasses",
        versions="v1 v1beta1 v1alpha1",
        short="vac",
        namespaced=False,
        returns_deleted=True,
    ),
    declare(
        _RESOURCE,
        "DeviceClass",
        "deviceclasses",
        namespaced=False,
        tracks_generation=True,
        returns_deleted=True,
    ),
    declare(
        _RESOURCE,
        "ResourceClaim",
        subresources=(STATUS,),
        status_keeps_metadata=True,
        returns_deleted=True,
    ),
    declare(_RESOURCE, "ResourceClaimTemplate", returns_deleted=True),
    declare(
        _RESOURCE, "ResourceSlice", namespaced=False, tracks_generation=True, returns_deleted=True
    ),
)
