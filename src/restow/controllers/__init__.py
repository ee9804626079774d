"""Controllers that the servers of a cluster run themselves.

They compact the store, remove expired events, empty namespaces that are being deleted, collect
garbage, create default service accounts, accept the names of CRDs and delete their instances,
recalculate quotas, manage APIServices, and publish the endpoints of the service `kubernetes`. Most
run on one server at a time (`store_lock`). Two at once would only do work twice, because every
write is guarded by the state that was read.

All of them are level-triggered: a change only queues a key, and the work depends on what the store
holds at that moment. Not here: HTTP, authorization, and how servers agree on versions.
"""

from restow.controllers.crds import CrdControllerOptions
from restow.controllers.manager import ControllerManager, ControllerManagerOptions, leader_elector
from restow.controllers.namespaces import RemoteContents, ensure_namespaces
from restow.controllers.proxy_trust import ProxyTrust
from restow.controllers.server_addresses import EndpointAddress
from restow.controllers.store_lock import store_elector

__all__ = [
    "ControllerManager",
    "ControllerManagerOptions",
    "CrdControllerOptions",
    "EndpointAddress",
    "ProxyTrust",
    "RemoteContents",
    "ensure_namespaces",
    "leader_elector",
    "store_elector",
]
