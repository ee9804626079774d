"""Every event channel between the parts of a server, and who subscribes to it.

A part emits an event without knowing the parts that act on it. They are called in the order of the
list, in the step of the emitter. Not here: what a part of a package tells another of that package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from restow.apiserver.aggregation import proxy_trust

if TYPE_CHECKING:  # `build` and the starts subscribe what they have built
    from restow.apiserver.aggregated_registration import SelfRegistration
    from restow.apiserver.assembly import Assembly
    from restow.apiserver.certificate_reload import CertificateReload
    from restow.apiserver.encryption import Encryption
    from restow.apiserver.pki import Pki
    from restow.apiserver.store_guard import StoreGuard
    from restow.controllers import ControllerManager
    from restow.storageversion.coordinator import Coordinator


@dataclass(frozen=True, slots=True)
class Subscription:
    """One row."""

    subscribe: Callable[[Any], None]
    """Of the channel."""
    subscriber: Callable[..., None]
    reason: str


def subscribe_all(rows: Iterable[Subscription]) -> None:
    for row in rows:
        row.subscribe(row.subscriber)


def assembly_subscriptions(assembly: Assembly) -> Iterator[Subscription]:
    """Between the parts that every server has."""
    custom, webhooks = assembly.custom, assembly.webhooks
    yield Subscription(
        custom.replaced.subscribe,
        assembly.store.forget,
        "caches and watches of a resource end with the CRD that they were made from",
    )
    yield Subscription(
        custom.replaced.subscribe,
        lambda resource: webhooks.retire(resource.remote),
        "conversions that are under way still use the old webhook, others do not",
    )
    yield Subscription(
        custom.removed.subscribe,
        webhooks.drop,
        "the webhook of a CRD that is gone is not called",
    )
    if assembly.audit is not None and assembly.auditor is not None:
        yield Subscription(
            assembly.audit.policy_changed.subscribe,
            assembly.auditor.take,
            "the audit policy is followed while the server runs",
        )


def agreement_subscriptions(
    assembly: Assembly,
    coordinator: Coordinator,
    *,
    guard: StoreGuard | None,
    encryption: Encryption | None,
) -> Iterator[Subscription]:
    """Between a server and what it agrees on with others."""
    yield Subscription(
        # KEP-1201 0.23: discovery changes with the selected version
        coordinator.table.switched.subscribe,
        assembly.discovery.forget,
        "discovery shows the hash of the version that is written, from the same step on",
    )
    if guard is not None:
        yield Subscription(
            guard.accepted.subscribe,
            coordinator.store_replaced,
            "what was registered in the store before says nothing of the accepted one",
        )
    if encryption is not None:

        def reload(roots: frozenset[str]) -> None:
            for root in roots:
                assembly.store.reload(root)

        yield Subscription(
            encryption.storage.recovered.subscribe,
            reload,
            "caches hold values that no key opened then, and that can be opened now",
        )


def certificate_subscriptions(
    renewal: CertificateReload,
    controllers: ControllerManager,
    write_kubeconfig: Callable[[Pki], None],
) -> Iterator[Subscription]:
    """Between the certificates of a main server and what publishes them."""
    yield Subscription(
        renewal.listeners.append,
        lambda pki: controllers.take_certificates(pki.serving_ca_pem.decode(), proxy_trust(pki)),
        "programs in namespaces and aggregated servers trust the new authorities",
    )
    yield Subscription(
        renewal.listeners.append, write_kubeconfig, "the certificate in the file ends, too"
    )


def registration_subscriptions(
    coordinator: Coordinator, registration: SelfRegistration
) -> Iterator[Subscription]:
    """Between the members of an aggregated server's agreement and their addresses."""
    yield Subscription(
        coordinator.mirror.listeners.append,
        registration.server_changed,
        "the address of a server that is gone is removed, and one that came back adds its own",
    )
