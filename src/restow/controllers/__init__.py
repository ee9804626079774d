"""What the servers of a cluster do by themselves, without being asked by a request.

Old history is compacted, old events are removed, namespaces that are being deleted are emptied,
dependents follow their owners, every namespace gets its account, definitions of custom resources
get their names and take their instances along when they go, quotas are counted anew, APIServices
say what is served, and the service `kubernetes` says where the servers are. Most of it is done by
one server at a time (`store_lock`); two at once would do double work and no harm, because every
write is guarded by what was read.

All of it is level-based: a change only says "look again", and what is done depends on what the
store holds at that moment. Not here: HTTP, rights, and how servers agree on versions.
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
