"""Executes one transaction, from validation to its outcome.

check -> send -> Done | Refused
           |
           reply lost -> resolve: end the session, read the history
                           found       -> Done
                           not found   -> it will never be applied: send it again
                           undecidable -> Unknown
"""

from __future__ import annotations

from typing import Any, Final

from restow.storage.checks import check_transaction
from restow.storage.errors import StoreReplaced, Unavailable
from restow.storage.etcd.connection import EtcdConnection
from restow.storage.etcd.encoding import (
    decode_refusal,
    encode_reads,
    encode_transaction,
    reads_inside,
)
from restow.storage.etcd.errors import UNSETTLED, EtcdCallFailed, translate
from restow.storage.etcd.messages import TXN
from restow.storage.etcd.outcome_resolver import Attempt, OutcomeResolver
from restow.storage.etcd.reader import EtcdReader
from restow.storage.etcd.session import Session
from restow.storage.interface import Done, Outcome, Revision, Transaction, Unknown

_ATTEMPTS_MAX: Final = 4


class EtcdCommitter:
    """Write methods of `EtcdStorage`."""

    def __init__(self, connection: EtcdConnection, reader: EtcdReader) -> None:
        self._connection = connection
        self._session = Session(connection)
        self._resolver = OutcomeResolver(connection, reader, self._session)

    async def commit(self, transaction: Transaction) -> Outcome:
        check_transaction(transaction)
        connection = self._connection
        timeout_seconds = connection.options.request_timeout_seconds
        deadline: float | None = None
        for _ in range(_ATTEMPTS_MAX):
            connection.check_usable()
            attempt = Attempt(transaction, connection.newest, self._session.guard)
            request = encode_transaction(transaction, session=attempt.session)
            try:
                response = await connection.call(
                    TXN, request, timeout_seconds=timeout_seconds, repeatable=False
                )
            except EtcdCallFailed as failed:
                if failed.cause not in UNSETTLED:
                    raise translate(failed) from failed
                if deadline is None:
                    resolve_seconds = connection.options.resolve_timeout_seconds
                    deadline = connection.runtime.clock.monotonic() + resolve_seconds
                if (outcome := await self._resolver.resolve(attempt, failed, deadline)) is not None:
                    return outcome
                timeout_seconds = deadline - connection.runtime.clock.monotonic()
                if timeout_seconds <= 0:
                    break
                continue
            if response.succeeded:
                try:
                    return Done(
                        connection.note_commit(response.header, transaction, before=attempt.before)
                    )
                except StoreReplaced as error:
                    # The transaction was applied, but the store may have been replaced.
                    return Unknown(str(error))
            revision = connection.note(response.header, before=attempt.before)
            if not reads_inside(transaction):
                response = await self._read_guards(transaction, revision)
            if (refused := decode_refusal(transaction, response.responses, revision)) is not None:
                return refused
            self._session.renew(attempt.session)
        raise Unavailable("etcd: the transaction was not applied; replies were lost repeatedly")

    async def _read_guards(self, transaction: Transaction, revision: Revision) -> Any:
        """The items of the guards' keys when the transaction was refused."""
        try:
            return await self._connection.call(
                TXN,
                encode_reads(transaction, revision=revision),
                timeout_seconds=self._connection.options.request_timeout_seconds,
                repeatable=True,
            )
        except EtcdCallFailed as failed:
            # It was refused, so nothing was written; only the failed guard cannot be reported.
            text = "etcd refused the transaction, and the reason could not be read"
            raise Unavailable(f"{text}: {failed}", client_message=text) from failed
