"""All subscriptions to event channels between the parts of a server.

A part emits events without knowing its subscribers, which are called in the order of the list,
synchronously. Not here: a part that subscribes itself, in its constructor, to a part that it was
given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from restow.apiserver.aggregation import proxy_trust

if TYPE_CHECKING:  # `build` and the start modules pass what they have built
    from restow.apiserver.aggregated_registration import SelfRegistration
    from restow.apiserver.assembly import Assembly
    from restow.apiserver.authentication import Authenticators
    from restow.apiserver.certificate_reload import CertificateReload
    from restow.apiserver.encryption import Encryption
    from restow.apiserver.pki import Pki
    from restow.apiserver.store_guard import StoreGuard
    from restow.controllers import ControllerManager
    from restow.storageversion.coordinator import Coordinator


@dataclass(frozen=True, slots=True)
class Subscription:
    """One row of the list."""

    subscribe: Callable[[Any], None]
    """The subscribe method of the channel."""
    subscriber: Callable[..., None]
    reason: str


def subscribe_all(rows: Iterable[Subscription]) -> None:
    for row in rows:
        row.subscribe(row.subscriber)


def assembly_subscriptions(assembly: Assembly) -> Iterator[Subscription]:
    """Subscriptions between the parts that every server has."""
    custom, webhooks = assembly.custom, assembly.webhooks
    yield Subscription(
        custom.replaced.subscribe,
        assembly.store.forget,
        "caches and watches of a resource end with its CRD",
    )
    yield Subscription(
        custom.replaced.subscribe,
        lambda resource: webhooks.retire(resource.remote),
        "conversions in flight complete with the old webhook, new ones use the new one",
    )
    yield Subscription(
        custom.removed.subscribe,
        webhooks.drop,
        "the webhook of a deleted CRD is not called any more",
    )
    yield Subscription(
        assembly.ended_sessions.ended.subscribe,
        assembly.app.revocation.check_soon,
        "the watches of an ended session end as well",
    )
    yield Subscription(
        assembly.catalog.changed.subscribe,
        assembly.admission.catalog_changed,
        "the equivalent resources of a webhook's rules depend on the resources that are served",
    )
    if assembly.audit is not None and assembly.auditor is not None:
        yield Subscription(
            assembly.audit.policy_changed.subscribe,
            assembly.auditor.take,
            "the auditor uses a reloaded policy",
        )


def agreement_subscriptions(
    assembly: Assembly,
    coordinator: Coordinator,
    *,
    guard: StoreGuard | None,
    encryption: Encryption | None,
) -> Iterator[Subscription]:
    """Subscriptions between a server and its coordination with others."""
    yield Subscription(
        # KEP-1201 0.23: discovery changes with the selected version
        coordinator.table.switched.subscribe,
        assembly.discovery.forget,
        "discovery returns the hash of the encoding version as soon as that changes",
    )
    if guard is not None:
        yield Subscription(
            guard.accepted.subscribe,
            coordinator.store_replaced,
            "registrations in the previous store do not apply to the accepted one",
        )
    if encryption is not None:
        if coordinator.key_watch is None:
            yield Subscription(
                encryption.keys.changed.subscribe,
                encryption.keys.settled,
                "keys that are not coordinated need no other server to have them",
            )

        def reload(roots: frozenset[str]) -> None:
            for root in roots:
                assembly.store.reload(root)

        yield Subscription(
            encryption.storage.recovered.subscribe,
            reload,
            "caches contain values that could not be decrypted before",
        )


def authenticator_subscriptions(
    renewal: CertificateReload, authenticators: Authenticators
) -> Iterator[Subscription]:
    """Subscriptions between the certificates of a main server and its authenticators."""
    yield Subscription(
        renewal.changed.subscribe,
        lambda pki: authenticators.take_clients(pki.client_ca_pem),
        "client certificates are verified with the current CAs",
    )


def certificate_subscriptions(
    renewal: CertificateReload,
    controllers: ControllerManager,
    write_kubeconfig: Callable[[Pki], None],
) -> Iterator[Subscription]:
    """Subscriptions between the certificates of a main server and their publishers."""
    yield Subscription(
        renewal.changed.subscribe,
        lambda pki: controllers.take_certificates(pki.serving_ca_pem.decode(), proxy_trust(pki)),
        "pods and aggregated servers must trust the new CAs",
    )
    yield Subscription(
        renewal.changed.subscribe, write_kubeconfig, "the certificate in the file expires as well"
    )


def registration_subscriptions(
    coordinator: Coordinator, registration: SelfRegistration
) -> Iterator[Subscription]:
    """Subscriptions between an aggregated server's membership and its Endpoints addresses."""
    yield Subscription(
        coordinator.mirror.changed.subscribe,
        registration.server_changed,
        "addresses of expired servers are removed, and a server that is back adds its own",
    )
