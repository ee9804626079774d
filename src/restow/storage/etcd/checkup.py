"""Requests the status of each etcd member, for `restow doctor`. It changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from restow.aio import Runtime
from restow.storage.etcd.connection import EtcdConnection
from restow.storage.etcd.errors import EtcdCallFailed
from restow.storage.etcd.messages import (
    ALARM,
    ALARMS,
    RANGE,
    STATUS,
    AlarmRequest,
    RangeRequest,
    StatusRequest,
)
from restow.storage.etcd.options import EtcdOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    """Status of one member."""

    endpoint: str
    problem: str = ""
    """Why the request failed; then the other fields are unset."""
    version: str = ""
    revision: int = 0
    has_leader: bool = False
    is_learner: bool = False
    bytes_held: int = 0
    """Size of its database file."""
    bytes_used: int = 0
    bytes_max: int = 0
    """Its quota; 0 if the member does not report it."""
    alarms: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


async def query_members(options: EtcdOptions, runtime: Runtime) -> list[MemberFacts]:
    """Query each endpoint separately, so that failover does not hide one that is down."""
    return [await _query(options, endpoint, runtime) for endpoint in options.endpoints]


async def _query(options: EtcdOptions, endpoint: str, runtime: Runtime) -> MemberFacts:
    connection = EtcdConnection(replace(options, endpoints=(endpoint,)), runtime)
    seconds = options.request_timeout_seconds
    try:
        await connection.log_in()
        status = await connection.call(
            STATUS, StatusRequest(), timeout_seconds=seconds, repeatable=True
        )
        alarms = await connection.call(
            ALARM, AlarmRequest(), timeout_seconds=seconds, repeatable=True
        )
        # It replies only if there is a leader and the disk accepts the Raft log entry.
        now = await connection.call(
            RANGE,
            RangeRequest(key=b"\0", count_only=True),
            timeout_seconds=seconds,
            repeatable=True,
        )
    except EtcdCallFailed as failed:
        return MemberFacts(endpoint=endpoint, problem=failed.details)
    finally:
        await connection.close()
    member = int(status.header.member_id)
    return MemberFacts(
        endpoint=endpoint,
        version=status.version,
        revision=int(now.header.revision),
        has_leader=status.leader != 0,
        is_learner=status.isLearner,
        bytes_held=int(status.dbSize),
        bytes_used=int(status.dbSizeInUse),
        bytes_max=int(status.dbSizeQuota),
        alarms=tuple(
            ALARMS.get(each.alarm, f"alarm {each.alarm}")
            for each in alarms.alarms
            if each.memberID == member
        ),
        errors=tuple(status.errors),
    )
