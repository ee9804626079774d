"""The rules that can be switched, and the world in which they are checked.

The defaults are restow's. Every other value is a plausible rule, or one that was implemented.
"""

from dataclasses import dataclass
from enum import Enum

from tests.model.state import V1, V2


class Fence(Enum):
    """What a write compares in its own transaction."""

    OWN_ENCODER = "own encoder key says the version used"
    OWN_PRESENT = "own encoder key is present"
    SELECTED = "selected version is the one used, and own encoder key is present"
    SELECTED_ALONE = "selected version is the one used"
    NOTHING = "nothing"


class Collection(Enum):
    """How entries of removed servers are removed."""

    GUARDED = "delete the key at the revision seen as expired; remove entries while it is absent"
    UNGUARDED_DELETE = "the same, but delete the key whatever its revision"
    READ_ERROR = "a server that could not be read is gone"
    ATOMIC = "remove entries of servers that are expired now, in one transaction"
    OBJECT_FIRST = "read the object, list the servers, update the object if unchanged"
    SERVERS_FIRST = "list the servers, read the object, update the object if unchanged"
    NO_PRECONDITION = "read the object, list the servers, write the object"


class Compared(Enum):
    """What a migration compares at its end with its start."""

    EPOCH = "the agreement epoch"
    REVISION = "the StorageVersion's resource version"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One set of rules."""

    voting: bool = False
    """Servers vote and all write the selected version; otherwise each reports its own."""

    fence: Fence = Fence.OWN_ENCODER
    barrier: bool = True
    """No write before registration."""

    key_first: bool = True
    """Registration is guarded by the presence of the own server key."""

    renewal_creates: bool = False
    """A renewal creates the server key when it is absent."""

    renewal_registers: bool = False
    """A server that was expired registers again after its renewal, before its next write."""

    collection: Collection = Collection.GUARDED
    removal_takes_encoder: bool = True
    """A registration that prunes an entry also deletes its encoder key."""

    registration_appends: bool = True
    """Registration and selection add their hash to the persisted hashes, in their transaction."""

    state_begins_unknown: bool = True
    """A StorageState made by a registration lists Unknown beside its hash."""

    state_always_written: bool = True
    """A change of agreement writes the StorageState even if the hash is listed."""

    selection_moves_entries: bool = True
    """A change of selection moves entries and encoder keys in its transaction."""

    compared: Compared = Compared.EPOCH
    narrowing_compares: bool = True
    """Narrowing is a compare-and-set with the epoch of the start."""

    rewrite_writes: bool = True
    """A rewrite that changes nothing but the version is a write."""

    skips_by_cache: bool = False
    """What is already stored right is skipped by a read that may be older than the start."""

    resume_compares: bool = True
    """A migration resumes at its old position only in the epoch in which that was saved."""

    @property
    def absence_is_final(self) -> bool:
        """An incarnation without server key, entry and encoder key can do nothing more."""
        return (
            self.fence in {Fence.OWN_ENCODER, Fence.OWN_PRESENT, Fence.SELECTED}
            and self.barrier
            and self.key_first
            and not self.renewal_creates
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The setting in which a protocol is checked."""

    slots: tuple[tuple[int, ...], ...] = ((V1, V2), (V1, V2))
    """For each process the encoding versions of its incarnations, in order."""

    objects: int = 1
    pauses: bool = True
    """A running process can be considered expired."""

    delays: bool = True
    """Requests of a process may be committed after its exit."""

    switches: bool = False
    """A server that reports may change its version while it runs, as for a custom resource."""

    follows_revision: bool = False
    """Tracks whether the StorageVersion has the revision of the migration's start."""
