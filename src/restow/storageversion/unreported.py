"""What a server that does not report (mode `off`) does to each StorageState before its first write.

The state lists "Unknown" from then on. A mark that outlives the server was written when it joined
(`records.UNREPORTED_KEY`): whatever becomes of the state while the server runs, the next server
that reports finds that the state does not take the mark into account, and adds "Unknown" again
(`changes.change`).

Not here: how agreements are unset before (`garbage_collector`), and what guards the server's own
writes.
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
"""Behind the id of the server in the mark of a state: it may write now. So it equals no id, and the
next server that reports adds "Unknown" again."""

logger = logging.getLogger(__name__)


async def mark_states(
    storage: Storage, mirror: Mirror, membership: Membership, clock: Clock
) -> None:
    """Have every StorageState list "Unknown". Raises a StorageError, or `MembershipLost`.

    A missing state is created as unknown by the next server that reports.
    """
    for item in mirror.under(STATES_PREFIX):
        await clock.sleep(0)  # there may be thousands
        try:
            name = name_of(GroupResource.parse(item.key.removeprefix(STATES_PREFIX)))
            await _mark_state(storage, mirror, membership, name)
        except (InvalidName, StoreDamaged) as error:
            logger.warning("%s is not marked as unknown: %s", item.key, error)


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
            raise MembershipLost(f"the key of {own} is gone")
        revision = outcome.revision if isinstance(outcome, Refused) else await storage.revision()
        await mirror.reach(revision, seconds=CATCH_UP_SECONDS)
    raise Unavailable(f"the StorageState of {name} was changed {MARK_ATTEMPTS_MAX} times")


def _marking(view: MirrorView, own: ServerId) -> Transaction | None:
    """None: there is nothing to mark. A state that lists "Unknown" is written all the same: a
    controller that would narrow it by what was read before must not succeed."""
    if view.state is None or view.state_item is None or are_remote(view.report.entries):
        return None
    known = view.state.state
    persisted = tuple(dict.fromkeys((UNKNOWN_HASH, *known.persisted)))
    state = replace(known, persisted=persisted, unreported=f"{own}{_RUNNING}")
    value = encode_state(view.name, replace(view.state, state=state))
    item = view.state_item
    guards = (Present(server_key(own)), RevisionIs(item.key, item.revision))
    return Transaction(guards, (Put(item.key, value),))
