"""The subset of etcd's protobuf messages and methods that is used here, as a table.

The table is turned into message classes when this module is imported. Fields that are not in the
table are skipped by the decoder. Two simplifications that the wire format allows: enums are int32,
and members of a oneof are plain fields. No behaviour here.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from restow.apimachinery.message_tables import message_classes

COMPARE_EQUAL: Final = 0
COMPARE_GREATER: Final = 1
COMPARE_VERSION: Final = 0
COMPARE_CREATE: Final = 1
COMPARE_MOD: Final = 2
COMPARE_VALUE: Final = 3
EVENT_DELETE: Final = 1
ALARMS: Final = {1: "NOSPACE", 2: "CORRUPT"}

_TABLE: Final = {
    "mvccpb.KeyValue": """
        1 key bytes, 2 create_revision int64, 3 mod_revision int64, 4 version int64, 5 value bytes
    """,
    "mvccpb.Event": "1 type int32, 2 kv mvccpb.KeyValue, 3 prev_kv mvccpb.KeyValue",
    "etcdserverpb.ResponseHeader": "1 cluster_id uint64, 2 member_id uint64, 3 revision int64",
    "etcdserverpb.RangeRequest": """
        1 key bytes, 2 range_end bytes, 3 limit int64, 4 revision int64, 7 serializable bool,
        8 keys_only bool, 9 count_only bool
    """,
    "etcdserverpb.RangeResponse": """
        1 header etcdserverpb.ResponseHeader, 2 kvs mvccpb.KeyValue*, 3 more bool, 4 count int64
    """,
    "etcdserverpb.PutRequest": "1 key bytes, 2 value bytes",
    "etcdserverpb.DeleteRangeRequest": "1 key bytes, 2 range_end bytes",
    "etcdserverpb.Compare": """
        1 result int32, 2 target int32, 3 key bytes, 4 version int64, 5 create_revision int64,
        6 mod_revision int64, 7 value bytes
    """,
    "etcdserverpb.RequestOp": """
        1 request_range etcdserverpb.RangeRequest, 2 request_put etcdserverpb.PutRequest,
        3 request_delete_range etcdserverpb.DeleteRangeRequest
    """,
    "etcdserverpb.ResponseOp": "1 response_range etcdserverpb.RangeResponse",
    "etcdserverpb.TxnRequest": """
        1 compare etcdserverpb.Compare*, 2 success etcdserverpb.RequestOp*,
        3 failure etcdserverpb.RequestOp*
    """,
    "etcdserverpb.TxnResponse": """
        1 header etcdserverpb.ResponseHeader, 2 succeeded bool, 3 responses etcdserverpb.ResponseOp*
    """,
    "etcdserverpb.CompactionRequest": "1 revision int64, 2 physical bool",
    "etcdserverpb.CompactionResponse": "1 header etcdserverpb.ResponseHeader",
    "etcdserverpb.WatchCreateRequest": """
        1 key bytes, 2 range_end bytes, 3 start_revision int64, 6 prev_kv bool, 8 fragment bool
    """,
    "etcdserverpb.WatchRequest": "1 create_request etcdserverpb.WatchCreateRequest",
    "etcdserverpb.WatchResponse": """
        1 header etcdserverpb.ResponseHeader, 2 watch_id int64, 3 created bool, 4 canceled bool,
        5 compact_revision int64, 6 cancel_reason string, 7 fragment bool, 11 events mvccpb.Event*
    """,
    "etcdserverpb.AuthenticateRequest": "1 name string, 2 password string",
    "etcdserverpb.AuthenticateResponse": "1 header etcdserverpb.ResponseHeader, 2 token string",
    "etcdserverpb.StatusRequest": "",
    "etcdserverpb.StatusResponse": """
        1 header etcdserverpb.ResponseHeader, 2 version string, 3 dbSize int64, 4 leader uint64,
        8 errors string*, 9 dbSizeInUse int64, 10 isLearner bool, 12 dbSizeQuota int64
    """,
    "etcdserverpb.SnapshotRequest": "",
    "etcdserverpb.SnapshotResponse": """
        1 header etcdserverpb.ResponseHeader, 2 remaining_bytes uint64, 3 blob bytes
    """,
    "etcdserverpb.AlarmRequest": "1 action int32, 2 memberID uint64, 3 alarm int32",
    "etcdserverpb.AlarmMember": "1 memberID uint64, 2 alarm int32",
    "etcdserverpb.AlarmResponse": """
        1 header etcdserverpb.ResponseHeader, 2 alarms etcdserverpb.AlarmMember*
    """,
}
"""Message -> its fields: number, name, type; a star marks a repeated field."""

_CLASSES: Final = message_classes(_TABLE)

AlarmRequest: Final = _CLASSES["etcdserverpb.AlarmRequest"]
AuthenticateRequest: Final = _CLASSES["etcdserverpb.AuthenticateRequest"]
CompactionRequest: Final = _CLASSES["etcdserverpb.CompactionRequest"]
RangeRequest: Final = _CLASSES["etcdserverpb.RangeRequest"]
SnapshotRequest: Final = _CLASSES["etcdserverpb.SnapshotRequest"]
StatusRequest: Final = _CLASSES["etcdserverpb.StatusRequest"]
TxnRequest: Final = _CLASSES["etcdserverpb.TxnRequest"]
WatchRequest: Final = _CLASSES["etcdserverpb.WatchRequest"]


class EtcdMethod(NamedTuple):
    """One method of etcd's services."""

    path: str
    request: Any
    response: Any


def _method(path: str, stem: str) -> EtcdMethod:
    request, response = (_CLASSES[f"etcdserverpb.{stem}{end}"] for end in ("Request", "Response"))
    return EtcdMethod(f"/etcdserverpb.{path}", request, response)


RANGE: Final = _method("KV/Range", "Range")
TXN: Final = _method("KV/Txn", "Txn")
COMPACT: Final = _method("KV/Compact", "Compaction")
WATCH: Final = _method("Watch/Watch", "Watch")
AUTHENTICATE: Final = _method("Auth/Authenticate", "Authenticate")
STATUS: Final = _method("Maintenance/Status", "Status")
ALARM: Final = _method("Maintenance/Alarm", "Alarm")
SNAPSHOT: Final = _method("Maintenance/Snapshot", "Snapshot")
UNARY_METHODS: Final = (RANGE, TXN, COMPACT, AUTHENTICATE, STATUS, ALARM)
