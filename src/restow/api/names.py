"""Names by which servers mark what is theirs: labels and annotations of the agreement.

Both those who write them (`restow.coordination`) and those who keep others from doing so
(`restow.resources.ownership`) read them here.

Not here: names of keys that are no API objects; they are the coordination's own.
"""

from typing import Final

__all__ = [
    "ADDRESS_ANNOTATION",
    "DEFINITIONS_ANNOTATION",
    "EPOCH_ANNOTATION",
    "FIGURES_ANNOTATION",
    "HOSTNAME_LABEL",
    "IDENTITY_LABEL",
    "IDENTITY_LABEL_VALUE",
    "KEYS_ANNOTATION",
    "LEASE_NAMESPACE",
    "LOOSE_ANNOTATION",
    "MEMBER_ANNOTATION",
    "OWNED_ANNOTATION_PREFIX",
    "PREFERRED_KEYS_ANNOTATION",
    "READABLE_KEYS_ANNOTATION",
    "RELEASE_ANNOTATION",
    "SEQUENCES_ANNOTATION",
    "STORES_ANNOTATION",
]

LEASE_NAMESPACE: Final = "kube-system"
"""Where servers have their identity leases."""
IDENTITY_LABEL: Final = "apiserver.kubernetes.io/identity"
IDENTITY_LABEL_VALUE: Final = "kube-apiserver"
"""A lease there with this value of the label tells that a server is alive."""

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"

OWNED_ANNOTATION_PREFIX: Final = "coordination.restow.dev/"
"""Annotations that only servers write begin so."""
EPOCH_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}epoch"
"""How often the agreement on a resource has changed."""
MEMBER_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}member"
"""On the lease of a server that takes part: what it writes is guarded, whatever else is seen."""
ADDRESS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}address"
"""On the lease of a server: where it alone is reached."""
RELEASE_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}release"
"""On the lease of a server: the catalogue that it hosts."""
DEFINITIONS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}definitions"
"""On the StorageVersion of a custom resource: from which definition each server has made it."""
KEYS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}encryption-keys"
"""Which server writes with which encryption key, as JSON."""
READABLE_KEYS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}readable-encryption-keys"
"""Which server can read which encryption keys, as JSON; one that is not named: none."""
PREFERRED_KEYS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}preferred-encryption-keys"
"""Which server would write with another key, and waits until all can read it, as JSON."""
STORES_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}stores"
"""Which server keeps its keys in another store, and in which, as JSON."""
SEQUENCES_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}store-revisions"
"""At which revision of its own store such a server has said what it says, as JSON."""
LOOSE_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}loose-seconds"
"""Which server may go on writing as before for how long after a change, as JSON."""
FIGURES_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}figures"
"""On the lease of a server: how many requests it has answered how fast, as JSON, for people."""
