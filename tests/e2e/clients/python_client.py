"""The official Python client, configured for a server.

Its types mark nearly every field as optional, so tests use it untyped.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

k8s: Final[Any] = importlib.import_module("kubernetes.client")
kube_config: Final[Any] = importlib.import_module("kubernetes.config")
dynamic: Final[Any] = importlib.import_module("kubernetes.dynamic")
informer: Final[Any] = importlib.import_module("kubernetes.informer")
aio: Final[Any] = importlib.import_module("kubernetes.aio")
utils: Final[Any] = importlib.import_module("kubernetes.utils")
watch: Final[Any] = importlib.import_module("kubernetes.watch")
election: Final[Any] = importlib.import_module("kubernetes.leaderelection.leaderelection")
election_config: Final[Any] = importlib.import_module("kubernetes.leaderelection.electionconfig")
lease_lock: Final[Any] = importlib.import_module("kubernetes.leaderelection.resourcelock.leaselock")


@contextmanager
def client_of(kubeconfig: Path) -> Iterator[Any]:
    """A client from a kubeconfig; it is also the default one while it is open."""
    configuration = k8s.Configuration()
    kube_config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    k8s.Configuration.set_default(configuration)
    with k8s.ApiClient(configuration) as client:
        try:
            yield client
        finally:
            client.rest_client.pool_manager.clear()
            k8s.Configuration.set_default(None)


def events_until(watching: Any, wanted: int, *arguments: Any, **options: Any) -> list[Any]:
    """Returns the first events of a watch, as (type, name) pairs."""
    found = []
    for event in watching.stream(*arguments, **options):
        found.append((event["type"], event["object"].metadata.name))
        if len(found) == wanted:
            watching.stop()
    return found


def config(name: str, *, labels: dict[str, str] | None = None, **data: str) -> Any:
    """A ConfigMap."""
    return k8s.V1ConfigMap(metadata=k8s.V1ObjectMeta(name=name, labels=labels), data=data)
