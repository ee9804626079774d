"""Names by which servers mark what is theirs: labels and annotations of the agreement.

Both those who write them (`restow.storageversion`) and those who keep others from doing so
(`restow.registry.ownership`) read them here.

Not here: names of keys that are no API objects; they are the coordination's own, but for
that of the epochs, which guards StorageStates as well.
"""

from typing import Final

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
EPOCHS_PREFIX: Final = "/restow/epoch/"
"""Where the store keeps it, by the name of the StorageVersion; absent: never reported."""
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
OTHER_VERSIONS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}other-versions"
"""Which server may write further versions besides its encodingVersion just now, as JSON."""
PREFERRED_KEYS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}preferred-encryption-keys"
"""Which server would write with another key, and waits until all can read it, as JSON."""
STORES_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}stores"
"""Which server keeps its keys in another store, and in which, as JSON."""
SEQUENCES_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}store-revisions"
"""At which revision of its own store such a server has said what it says, as JSON."""
LOCATIONS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}locations"
"""In which form of keys each server stores the objects, as JSON; one that is not named: unknown."""
LOOSE_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}loose-seconds"
"""Which server may go on writing as before for how long after a change, as JSON."""
UNREPORTED_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}unreported-writer"
"""On a StorageState: the last server that wrote without reporting, as far as the persisted hashes
take it into account."""
VERIFIER_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}verifier"
"""On a StorageState: on whose evidence persisted hashes may be removed, one of these two."""
VERIFIED_BY_SERVERS: Final = "servers"
"""API servers rewrite the resource themselves, and remove hashes after a verifying pass."""
VERIFIED_BY_MIGRATOR: Final = "migrator"
"""No API server of this cluster can verify a pass: the servers are aggregated ones, or vote with
the loose guarantee. A client may remove hashes, on weaker evidence: its own pass, or a census."""
VERIFIED_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}verified"
"""On a StorageState: the last verifying pass of a server, as JSON (`coordination.verification`)."""
ENCRYPTION_PROBLEM_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}encryption-problem"
"""On the lease of a server: its encryption configuration file, if it refuses it, and why."""
FIGURES_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}figures"
"""On the lease of a server: how many requests it has answered how fast, as JSON, for people."""
