"""The keys of one configuration: selects the key that encrypts and the keys that decrypt.

A *ring* is built from the providers of a resource: its keys in order, and whether plain values are
accepted. The storage key determines the resource. A value with the prefix of an encrypted one is
never treated as plain; if two secrets have the same name, both are tried.

Not here: ciphers (`providers`, `kms`), and configuration changes (`key_reload`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from restow.aio import Runtime
from restow.aio.events import EventChannel
from restow.apimachinery.names import GroupResource
from restow.apis.encryption_keys import ANY, IDENTITY
from restow.encryption.configuration import (
    PLAIN,
    Configuration,
    IdentityProvider,
    KmsProvider,
    LocalProvider,
    Provider,
)
from restow.encryption.decryption import key_named_in
from restow.encryption.interface import Opened
from restow.encryption.providers import LocalCipher, WrongKey, ciphers_of
from restow.kinds.builtin import builtin_roots
from restow.storage.checks import resource_of
from restow.storage.errors import CannotOpen, Unavailable
from restow.storage.interface import SEALED_PREFIX, Key

if TYPE_CHECKING:  # gRPC is imported only if there is a plug-in
    from restow.encryption.kms import Plugin

ROOTS_MAX: Final = 10_000
"""Limit of cached rings, above the number of resources in any real cluster."""


class Ring:
    """The keys of a set of resources."""

    def __init__(
        self,
        providers: tuple[Provider, ...],
        *,
        ciphers: Mapping[LocalProvider, list[LocalCipher]],
        plugins: Mapping[str, Plugin],
    ) -> None:
        self.reads_plain = False
        self._keys: list[LocalCipher | Plugin | None] = []
        """The ciphers in order; None stands for plain values."""
        self._openers: dict[bytes, list[LocalCipher | Plugin]] = {}
        for provider in providers:
            if isinstance(provider, LocalProvider):
                for cipher in ciphers[provider]:
                    self._keys.append(cipher)
                    self._openers.setdefault(cipher.prefix, []).append(cipher)
            elif isinstance(provider, KmsProvider):
                plugin = plugins[provider.name]
                self._keys.append(plugin)
                self._openers[plugin.prefix] = [plugin]
            else:
                self.reads_plain = True
                self._keys.append(None)
        # Nearly all values were written with the first key.
        self._usual = next(iter(self._openers), b"none of them begins like this")

    def write_key(self) -> str:
        first = self._keys[0]
        if first is None:
            return ""
        return first.key_id if isinstance(first, LocalCipher) else first.write_id()

    def writable(self) -> tuple[str, ...]:
        found: list[str] = []
        for key in self._keys:
            if key is None:
                found.append("")
            elif isinstance(key, LocalCipher):
                found.append(key.key_id)
            else:
                found += key.write_ids()
        return tuple(dict.fromkeys(found))

    def readable(self) -> tuple[str, ...]:
        found: list[str] = []
        for key in self._keys:
            if key is None:
                found.append(IDENTITY)
            elif isinstance(key, LocalCipher):
                found.append(key.key_id)
            else:
                found.append(f"kms:{key.name}:{ANY}")
        return tuple(dict.fromkeys(found))

    def open_plain(self, value: bytes) -> Opened:
        if self.reads_plain:
            return Opened(value, "")
        raise CannotOpen(
            "it is not encrypted, and this server accepts no plain values of this resource: add the"
            " provider identity at the end of its list, rewrite the objects, then remove it"
        )

    def open_sealed(self, key: Key, value: bytes) -> Opened:
        if value.startswith(self._usual):
            openers: list[LocalCipher | Plugin] | None = self._openers[self._usual]
        else:
            openers = self._openers.get(prefix_of(value))
        if openers is None:
            raise CannotOpen(
                f"it is encrypted with {key_named_in(value)}, which this server does not have: add"
                " that key to the encryption configuration of this resource"
            )
        for opener in openers:
            if not isinstance(opener, LocalCipher):
                return opener.open(key, value)
            try:
                return Opened(opener.open(key, value), opener.key_id)
            except WrongKey:
                continue
        raise CannotOpen(
            f"it is encrypted with {key_named_in(value)}, and the key of that name cannot decrypt"
            " it: this server has another secret under that name, or the value was changed or"
            " moved from another key of the store",
            tried=tuple(each.key_id for each in openers if isinstance(each, LocalCipher)),
        )


def prefix_of(value: bytes) -> bytes:
    """Return `k8s:enc:<provider>:<version>:<name>:`, or an empty prefix if there is none."""
    end = len(SEALED_PREFIX) - 1
    for _ in range(3):
        end = value.find(b":", end + 1)
        if end < 0:
            return b""
    return value[: end + 1]


class Keyring:
    """Implements `interface.Keys` for one configuration."""

    def __init__(
        self, configuration: Configuration, runtime: Runtime, *, plugins: Mapping[str, Plugin]
    ) -> None:
        """`plugins` by name; the caller starts and closes them."""
        self.configuration = configuration
        self.changed: EventChannel[[]] = EventChannel()
        self.plugins = {each.name: plugins[each.name] for each in configuration.plugins()}
        self._by_prefix = {plugin.prefix: plugin for plugin in self.plugins.values()}
        self._ciphers: dict[LocalProvider, list[LocalCipher]] = {}
        self._sealers: dict[str, LocalCipher] = {}
        draw = runtime.randomness.token_bytes
        for providers in configuration.rules.values():
            for provider in providers:
                if isinstance(provider, LocalProvider) and provider not in self._ciphers:
                    self._ciphers[provider] = ciphers_of(provider, draw)
                    for cipher in self._ciphers[provider]:
                        self._sealers.setdefault(cipher.key_id, cipher)
        self._plain = self._ring(PLAIN)
        self._by_providers: dict[tuple[Provider, ...], Ring] = {PLAIN: self._plain}
        self._by_root: dict[str | None, Ring] = {None: self._plain}

    @property
    def is_empty(self) -> bool:
        """Whether it neither encrypts nor can decrypt anything."""
        return not self._sealers and not self.plugins

    def write_key(self, resource: GroupResource) -> str:
        return self.ring(resource).write_key()

    def readable(self, resource: GroupResource) -> tuple[str, ...]:
        return self.ring(resource).readable()

    def writable(self, resource: GroupResource) -> tuple[str, ...]:
        return self.ring(resource).writable()

    def seal(self, key_id: str, key: Key, value: bytes) -> bytes:
        sealer = self._sealers.get(key_id)
        if sealer is not None:
            return sealer.seal(key, value)
        if not key_id:
            return value
        provider, _, rest = key_id.partition(":")
        plugin = self.plugins.get(rest.partition(":")[0]) if provider == "kms" else None
        if plugin is None:
            raise Unavailable(f"this server no longer has the encryption key {key_id}")
        return plugin.seal(key_id, key, value)

    def open(self, key: Key, value: bytes) -> Opened:
        root = resource_of(key)
        ring = self._by_root.get(root) or self._ring_of_root(root)
        if value.startswith(SEALED_PREFIX):
            return ring.open_sealed(key, value)
        return ring.open_plain(value)

    def settled(self) -> None:
        """Do nothing: one configuration has no earlier keys to drop."""

    async def prepare(self, values: Iterable[bytes]) -> None:
        wanted: dict[bytes, list[bytes]] = {}
        for value in values:
            prefix = prefix_of(value)
            if prefix in self._by_prefix:
                wanted.setdefault(prefix, []).append(value)
        for prefix, sealed in wanted.items():
            await self._by_prefix[prefix].prepare(sealed)

    def problem(self) -> str:
        """Problems of the plug-ins, for health checks; empty: none."""
        return "; ".join(
            f"kms-provider-{number}: {plugin.trouble}"
            for number, plugin in enumerate(self.plugins.values())
            if plugin.trouble
        )

    def ring(self, resource: GroupResource) -> Ring:
        providers = self.configuration.providers_of(resource)
        ring = self._by_providers.get(providers)
        if ring is None:
            ring = self._by_providers[providers] = self._ring(providers)
        return ring

    def _ring(self, providers: tuple[Provider, ...]) -> Ring:
        return Ring(providers, ciphers=self._ciphers, plugins=self.plugins)

    def _ring_of_root(self, root: str | None) -> Ring:
        assert root is not None, "the ring for keys of no resource is created at the start"
        ring = self.ring(resource_at(root))
        if len(self._by_root) < ROOTS_MAX:
            self._by_root[root] = ring
        return ring


def readable_ids(configuration: Configuration, resource: GroupResource) -> tuple[str, ...]:
    """The IDs of the keys that a configuration can read a resource with. Calls no plug-in."""
    found: list[str] = []
    for provider in configuration.providers_of(resource):
        match provider:
            case LocalProvider():
                # Nothing is encrypted here, so no random bytes are needed.
                found += [cipher.key_id for cipher in ciphers_of(provider, bytes)]
            case KmsProvider():
                found.append(f"kms:{provider.name}:{ANY}")
            case IdentityProvider():
                found.append(IDENTITY)
    return tuple(dict.fromkeys(found))


def resource_at(root: str) -> GroupResource:
    """The resource whose keys start with `/registry/<root>/`."""
    builtin = builtin_roots().get(root)
    if builtin is not None:
        return builtin
    head, _, tail = root.partition("/")
    return GroupResource(head, tail) if tail else GroupResource("", head)
