"""Controller of the ConfigMap `extension-apiserver-authentication`, for aggregated servers.

It contains the client CA, the request header CA, and the names of the headers in which a front
proxy passes the user. Aggregated servers read it when they start, and follow it.

Every server adds its own values: requests from a server with other CAs than its peers must be
accepted as well. So existing values are kept, except for expired CAs. To remove a CA, delete the
ConfigMap; the running servers create it again. Not here: proxying requests, and authentication by
these headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from restow.aio import Clock, WorkQueue
from restow.aio.runtime import Runtime
from restow.apimachinery import status
from restow.apimachinery.certificates import Certificate, read_pem, to_pem
from restow.controllers.object_keys import working_version
from restow.controllers.object_updates import update_if_present
from restow.registry.catalog import Catalog
from restow.registry.resource import Object
from restow.registry.store import ResourceStore
from restow.registry.stored_bytes import check_opened, load
from restow.storage.interface import Batch, Revision

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"
RESYNC_SECONDS: Final = 60.0
EXPIRED_SECONDS: Final = 300.0
"""How long a CA is kept after its expiry, because clocks differ."""
LISTED_MAX: Final = 100
"""Limit of the values in each field."""

_CLIENT_CA: Final = "client-ca-file"
_PROXY_CA: Final = "requestheader-client-ca-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyTrust:
    """The values of one server."""

    client_ca_pem: str
    proxy_ca_pem: str = ""
    """Empty: this server proxies no requests."""
    allowed_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    @property
    def lists(self) -> dict[str, tuple[str, ...]]:
        """The fields that are lists, in the order in which they are written."""
        return {
            "requestheader-username-headers": self.username_headers,
            "requestheader-uid-headers": self.uid_headers,
            "requestheader-group-headers": self.group_headers,
            "requestheader-extra-headers-prefix": self.extra_prefixes,
            "requestheader-allowed-names": self.allowed_names,
        }


def merged(data: dict[str, str], own: ProxyTrust, now: datetime) -> dict[str, str]:
    """Merge a server's values into the data of the ConfigMap; unreadable values are dropped."""
    result = {_CLIENT_CA: _merged_pem(data.get(_CLIENT_CA), own.client_ca_pem, now)}
    if own.proxy_ca_pem or data.get(_PROXY_CA):
        result[_PROXY_CA] = _merged_pem(data.get(_PROXY_CA), own.proxy_ca_pem, now)
        for name, values in own.lists.items():
            result[name] = orjson.dumps(_joined(_listed(data.get(name)), values)).decode()
    return {name: text for name, text in result.items() if text}


class ProxyTrustController:
    """Keeps the ConfigMap up to date. Each server runs one; the leader also observes its
    changes."""

    def __init__(
        self, store: ResourceStore, catalog: Catalog, runtime: Runtime, own: ProxyTrust
    ) -> None:
        resource = catalog.required("", "ConfigMap")
        self._resource = resource
        self._path = resource.path_of(NAMESPACE, NAME)
        self._key = resource.key_of(self._path)
        self._store = store
        self._clock: Clock = runtime.clock
        self._own = own
        """May be replaced; published at the next resync."""
        self.queue: WorkQueue[str] = runtime.work_queue("proxy-trust")

    async def list_objects(self, revision: Revision) -> None:
        self.queue.add(NAME)

    def on_batch(self, batch: Batch) -> None:
        """Handle changes of the ConfigMap."""
        if any(event.key == self._key for event in batch.events):
            self.queue.add(NAME)

    def take(self, own: ProxyTrust) -> None:
        """Publish these values from the next resync on."""
        self._own = own

    async def resync(self) -> float:
        """Check the ConfigMap periodically."""
        await self.reconcile(NAME)
        return RESYNC_SECONDS

    async def reconcile(self, _name: str) -> float | None:
        """Add missing values. Raises `CannotOpen` if the ConfigMap cannot be decrypted."""
        item = await self._store.storage.get(self._key)
        if item is None:
            await self._create()
            return None
        check_opened(item.value)
        before = _data_of(load(item.value))
        if self._merged(before) != before:
            await self._update()
        return None

    def _merged(self, data: dict[str, str]) -> dict[str, str]:
        return merged(data, self._own, self._clock.wall())

    async def _create(self) -> None:
        obj = {"metadata": {"name": NAME}, "data": self._merged({})}
        resource = self._resource
        try:
            await self._store.create(resource, working_version(resource), obj, namespace=NAMESPACE)
        except status.AlreadyExists:
            await self._update()  # created by a peer

    async def _update(self) -> None:
        def change(obj: Object) -> Object:
            obj["data"] = self._merged(_data_of(obj))
            return obj

        await update_if_present(self._store, self._resource, self._path, change)


def _data_of(obj: Object) -> dict[str, str]:
    data: Any = obj.get("data")
    return dict(data) if isinstance(data, dict) else {}


def _listed(text: str | None) -> list[str]:
    try:
        found = orjson.loads(text or "[]")
    except orjson.JSONDecodeError:
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _joined(present: Iterable[str], own: Iterable[str]) -> list[str]:
    """Merge values in their order, each once; a fixed order avoids endless updates by servers."""
    known = dict.fromkeys(own)
    values = list(dict.fromkeys([*present, *known]))
    surplus = len(values) - LISTED_MAX
    if surplus > 0:
        others = [each for each in values if each not in known]
        dropped = set(others[:surplus])
        values = [each for each in values if each not in dropped]
    return values


def _merged_pem(text: str | None, own: str, now: datetime) -> str:
    oldest = now - timedelta(seconds=EXPIRED_SECONDS)
    present, mine = (
        [to_pem(each).decode() for each in _certificates(pem) if each.not_valid_after_utc > oldest]
        for pem in (text or "", own)
    )
    return "".join(_joined(present, mine))


def _certificates(text: str) -> list[Certificate]:
    try:
        return read_pem(text.encode()) if text.strip() else []
    except ValueError:
        return []
