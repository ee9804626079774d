"""Labels and annotations that servers use for the storage version agreement.

They are shared by the code that writes them (`restow.storageversion`) and the code that prevents
clients from writing them (`restow.registry.ownership`).

Not here: keys that are not API objects; they are private to the coordination, except the key of the
epochs, which guards StorageStates as well.
"""

from typing import Final

LEASE_NAMESPACE: Final = "kube-system"
"""Namespace of the servers' identity leases."""
IDENTITY_LABEL: Final = "apiserver.kubernetes.io/identity"
IDENTITY_LABEL_VALUE: Final = "kube-apiserver"
"""Leases with this label value are the identity leases of API servers."""

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"

OWNED_ANNOTATION_PREFIX: Final = "coordination.restow.dev/"
"""Prefix of annotations that only servers write."""
EPOCH_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}epoch"
"""Number of changes of the agreement on a resource."""
EPOCHS_PREFIX: Final = "/restow/epoch/"
"""Key prefix in the store, followed by the name of a StorageVersion. A resource without such a key
was never reported."""
MEMBER_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}member"
"""On the lease of a participating server: its writes are fenced."""
ADDRESS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}address"
"""On the lease of a server: its own address."""
RELEASE_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}release"
"""On the lease of a server: the release that it hosts."""
DEFINITIONS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}definitions"
"""On the StorageVersion of a custom resource: the CRD from which each server created it."""
KEYS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}encryption-keys"
"""The encryption key with which each server writes, as JSON."""
READABLE_KEYS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}readable-encryption-keys"
"""The encryption keys that each server can read, as JSON; a missing server can read none."""
OTHER_VERSIONS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}other-versions"
"""Versions that each server may currently write besides its encodingVersion, as JSON."""
PREFERRED_KEYS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}preferred-encryption-keys"
"""The key that each server will write with once all servers can read it, as JSON."""
STORES_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}stores"
"""The store in which each server keeps its keys, if it is another one, as JSON."""
SEQUENCES_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}store-revisions"
"""For each server with its own store: the revision of that store at which it reported, as JSON."""
LOCATIONS_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}locations"
"""The key layout in which each server stores the objects, as JSON; missing: unknown."""
LOOSE_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}loose-seconds"
"""How long each server may continue to write as before after a change, as JSON."""
UNREPORTED_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}unreported-writer"
"""On a StorageState: the last unregistered server whose writes the persisted hashes take into
account."""
VERIFIER_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}verifier"
"""On a StorageState: who verifies migrations, so that persisted hashes may be removed; one of the
next two values."""
VERIFIED_BY_SERVERS: Final = "servers"
"""API servers rewrite the resource themselves, and remove hashes after a verifying pass."""
VERIFIED_BY_MIGRATOR: Final = "migrator"
"""No API server of this cluster can verify a pass: the servers are aggregated ones, or vote with
the loose guarantee. A client may remove hashes, on weaker evidence: its own pass, or a census."""
VERIFIED_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}verified"
"""On a StorageState: the last verifying pass of a server, as JSON
(`storageversion.verification`)."""
ENCRYPTION_PROBLEM_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}encryption-problem"
"""On the lease of a server: path and error of its encryption configuration file, if rejected."""
FIGURES_ANNOTATION: Final = f"{OWNED_ANNOTATION_PREFIX}figures"
"""On the lease of a server: request counts and latencies, as JSON, for display."""
