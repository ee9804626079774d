"""Marks every StorageState before a server that does not report (mode `off`) writes.

The state then lists "Unknown". A mark that stays in the store after the server was written when it
joined (`records.UNREPORTED_KEY`). If the state changes while the server runs, the next server that
registers finds that the state does not account for the mark, and adds "Unknown" again
(`changes.change`).

Not here: the earlier removal of agreements (`garbage_collector`), and the guards of the server's
own writes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from restow.aio import Clock
from restow.apimachinery.errors import InvalidName
from restow.apimachinery.names import GroupResource
from restow.storage.errors import StoreDamaged, Unavailable
from restow.storage.interface import (
    Done,
    Present,
    Put,
    Refused,
    RevisionIs,
    Storage,
    Transaction,
)
from restow.storageversion.changes import MirrorView
from restow.storageversion.errors import MembershipLost
from restow.storageversion.identity import ServerId, server_key
from restow.storageversion.membership import Membership
from restow.storageversion.mirror import Mirror
from restow.storageversion.object_codec import STATES_PREFIX, encode_state
from restow.storageversion.records import name_of
from restow.storageversion.rules import UNKNOWN_HASH, are_remote

MARK_ATTEMPTS_MAX: Final = 20
CATCH_UP_SECONDS: Final = 2.0
_RUNNING: Final = " running"
"""Suffix of the server id in the mark of a state: the server may write now. The mark then equals no
id, so that the next server that registers adds "Unknown" again."""

logger = logging.getLogger(__name__)


async def mark_states(
    storage: Storage, mirror: Mirror, membership: Membership, clock: Clock
) -> None:
    """Add "Unknown" to every StorageState. Raises a StorageError, or `MembershipLost`.

    The next server that registers creates a missing state with "Unknown".
    """
    for item in mirror.under(STATES_PREFIX):
        await clock.sleep(0)  # Yield: there may be thousands of states.
        try:
            name = name_of(GroupResource.parse(item.key.removeprefix(STATES_PREFIX)))
            await _mark_state(storage, mirror, membership, name)
        except (InvalidName, StoreDamaged) as error:
            logger.warning('cannot add "Unknown" to %s: %s', item.key, error)


async def _mark_state(storage: Storage, mirror: Mirror, membership: Membership, name: str) -> None:
    own = membership.id
    for _ in range(MARK_ATTEMPTS_MAX):
        transaction = _marking(MirrorView.of(mirror, name), own)
        if transaction is None:
            return
        outcome = await storage.commit(transaction)
        if isinstance(outcome, Done):
            return
        if isinstance(outcome, Refused) and outcome.guard == Present(server_key(own)):
            await membership.check()
            raise MembershipLost(f"the membership record of {own} was removed")
        revision = outcome.revision if isinstance(outcome, Refused) else await storage.revision()
        await mirror.reach(revision, seconds=CATCH_UP_SECONDS)
    raise Unavailable(f"the StorageState of {name} was changed {MARK_ATTEMPTS_MAX} times")


def _marking(view: MirrorView, own: ServerId) -> Transaction | None:
    """Return the transaction that marks a state; None: there is nothing to mark. A state that lists
    "Unknown" is written too, so that a narrowing computed from an earlier read fails."""
    if view.state is None or view.state_item is None or are_remote(view.report.entries):
        return None
    known = view.state.state
    persisted = tuple(dict.fromkeys((UNKNOWN_HASH, *known.persisted)))
    state = replace(known, persisted=persisted, unreported=f"{own}{_RUNNING}")
    value = encode_state(view.name, replace(view.state, state=state))
    item = view.state_item
    guards = (Present(server_key(own)), RevisionIs(item.key, item.revision))
    return Transaction(guards, (Put(item.key, value),))
