"""Updates of the StorageState by servers after a pass of the server-side rewrite.

    a whole pass under one epoch found nothing to rewrite -> only the target hash and key stay
                                                             in the state, and the pass is recorded
    an object could not be rewritten                      -> "Unknown" is added

Both are one transaction. Narrowing is guarded by the revisions of the epoch, of the StorageVersion
and of the StorageState, so it happens only under the agreement of the pass, and overwrites no newer
record. Clients cannot narrow a state (`restow.registry.ownership`): no condition or annotation of a
migration is evidence.

The record is the annotation `coordination.restow.dev/verified` of the StorageState. It describes
the last verifying pass; once the epoch has changed, it does not describe the present.

Not here: how a pass is run (`rewrite`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.encryption_keys import IDENTITY
from restow.apis.names import VERIFIED_ANNOTATION, VERIFIED_BY_SERVERS, VERIFIER_ANNOTATION
from restow.storage.interface import Done, Item, Put, RevisionIs, Storage, Transaction
from restow.storageversion.object_codec import (
    decode_report,
    decode_state,
    edited_state,
    report_key,
    state_key,
)
from restow.storageversion.records import decode_epoch, epoch_key
from restow.storageversion.rules import UNKNOWN_HASH, Agreement

ATTEMPTS_MAX: Final = 16
"""The trigger and other servers write the state concurrently."""


class CleanPass(NamedTuple):
    """A pass over all objects of a resource that found no stale object."""

    target: Agreement
    epoch: int
    """The epoch of every page."""
    revision: int
    """The store revision at which the last page was read."""
    migration_uid: str


async def record_clean_pass(storage: Storage, name: str, found: CleanPass) -> bool:
    """Narrow the state of a resource to the target; return whether the state is narrowed now.

    False if the agreement has changed, the servers vote with the loose guarantee, or there is no
    state. `name` is the name of the StorageVersion.
    """
    for _ in range(ATTEMPTS_MAX):
        epoch = await storage.get(epoch_key(name))
        report = await storage.get(report_key(name))
        state = await storage.get(state_key(name))
        if epoch is None or report is None or state is None:
            return False
        agreed = decode_epoch(epoch.value)
        if (agreed.epoch, agreed.agreement) != (found.epoch, found.target):
            return False
        if any(entry.loose_seconds for entry in decode_report(report).report.entries):
            return False  # A server may still write the previous version: only a census can verify.
        value = _narrowed(
            state,
            found,
            storage_version_hash(GroupVersionKind.of(found.target.version, agreed.kind)),
        )
        if value == state.value:
            return True
        guards = tuple(RevisionIs(item.key, item.revision) for item in (epoch, report, state))
        # After an unknown outcome the next attempt reads whether it was committed.
        if isinstance(await storage.commit(Transaction(guards, (Put(state.key, value),))), Done):
            return True
    return False


async def record_failures(storage: Storage, name: str) -> None:
    """Add "Unknown" to the state of a resource with an object that could not be rewritten."""
    for _ in range(ATTEMPTS_MAX):
        item = await storage.get(state_key(name))
        if item is None:
            return
        state = decode_state(item).state
        if not state.persisted or UNKNOWN_HASH in state.persisted:
            return
        persisted = (UNKNOWN_HASH, *state.persisted)
        value = edited_state(item, persisted=persisted, keys=state.keys, owned={})
        guard = RevisionIs(item.key, item.revision)
        if isinstance(await storage.commit(Transaction((guard,), (Put(item.key, value),))), Done):
            return


def _narrowed(item: Item, found: CleanPass, target_hash: str) -> bytes:
    """Return the state after the pass; unchanged if the migration has already narrowed it."""
    stored = decode_state(item)
    state = stored.state
    key = found.target.key_id or IDENTITY
    record = {
        "version": found.target.version,
        "hash": target_hash,
        "key": key,
        "epoch": found.epoch,
        "revision": found.revision,
        "migration": found.migration_uid,
    }
    before = stored.metadata.get("annotations") or {}
    is_narrowed = (state.persisted, state.keys) == ((target_hash,), (key,))
    if is_narrowed and _is_recorded(before.get(VERIFIED_ANNOTATION), record):
        return item.value
    owned = {
        VERIFIED_ANNOTATION: orjson.dumps(record).decode(),
        VERIFIER_ANNOTATION: VERIFIED_BY_SERVERS,
    }
    # KEP-2343 4.9: after a verified migration only the current hash remains
    return edited_state(item, persisted=(target_hash,), keys=(key,), owned=owned)


def _is_recorded(text: object, record: dict[str, object]) -> bool:
    """Return whether an annotation equals the record, except for its revision."""
    try:
        known = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        return False
    return isinstance(known, dict) and {**known, "revision": None} == {**record, "revision": None}
