"""A client of the API: requests, watches, informers. It works with any Kubernetes API server.

Not here: knowledge of the storage. The client uses only the API, so the packages of a server,
such as `storage`, `registry` and `storageversion`, must not be imported.
"""

from restow.aio.leader_election import (
    LeaderElector,
    Leadership,
    LeadershipLost,
    LeaderTiming,
)
from restow.apimachinery.names import GroupVersionResource
from restow.client.caller import ClientLimits
from restow.client.client import ApiClient, ListPage
from restow.client.config import ClientConfig, in_cluster_config
from restow.client.connections import ConnectionLimits
from restow.client.discovery import ApiGroup, ApiResource, DiscoveredResources
from restow.client.errors import (
    AnswerTooLarge,
    CacheFull,
    ClientError,
    ConfigInvalid,
    ConnectionFailed,
    CredentialsFailed,
    NoSuchResource,
)
from restow.client.informer import Informer, ObjectChange
from restow.client.kubeconfig import find_config, load_config, read_kubeconfig
from restow.client.lease_lock import LeaseLock, lease_elector, unique_identity
from restow.client.objects import Object, ObjectKey, key_of, metadata_of, uid_of, version_of
from restow.client.overrides import ConfigOverrides
from restow.client.paths import ListOptions, PatchType, Propagation, WriteOptions
from restow.client.retry_policy import NO_RETRY, RetryPolicy
from restow.client.transport import HttpTransport, InProcessResponse, InProcessTransport, Transport
from restow.client.watcher import EventType, WatchEvent, WatchPolicy

__all__ = [
    "NO_RETRY",
    "AnswerTooLarge",
    "ApiClient",
    "ApiGroup",
    "ApiResource",
    "CacheFull",
    "ClientConfig",
    "ClientError",
    "ClientLimits",
    "ConfigInvalid",
    "ConfigOverrides",
    "ConnectionFailed",
    "ConnectionLimits",
    "CredentialsFailed",
    "DiscoveredResources",
    "EventType",
    "GroupVersionResource",
    "HttpTransport",
    "InProcessResponse",
    "InProcessTransport",
    "Informer",
    "LeaderElector",
    "LeaderTiming",
    "Leadership",
    "LeadershipLost",
    "LeaseLock",
    "ListOptions",
    "ListPage",
    "NoSuchResource",
    "Object",
    "ObjectChange",
    "ObjectKey",
    "PatchType",
    "Propagation",
    "RetryPolicy",
    "Transport",
    "WatchEvent",
    "WatchPolicy",
    "WriteOptions",
    "find_config",
    "in_cluster_config",
    "key_of",
    "lease_elector",
    "load_config",
    "metadata_of",
    "read_kubeconfig",
    "uid_of",
    "unique_identity",
    "version_of",
]
