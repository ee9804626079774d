"""The etcd driver: a store for more than one machine.

    storage     EtcdStorage and open_etcd: joins the parts below
    options     user options, and their URL form
    messages    etcd's messages and methods, as a table
    connection  channels to the members, failover, deadlines, the auth token
    credentials TLS certificates and password, from files that are checked
    errors      translates errors of gRPC and etcd into errors of storage
    encoding    keys, spans and transactions to messages, and back
    reader      get, range, count, and the batched request for the revision
    commit      one transaction; with `session` and `outcome_resolver`, for lost replies
    stream      one watch stream, split into whole revisions
    hub         the stream that feeds all watches
    backlog     the stream of one watch that is behind the hub's memory
    read_only   pages of raw values at one revision, for the census
    snapshot    the whole database of a member, for a backup
    checkup     the state of each member, for the doctor
    stream_recovery  what to do before a failed stream is reopened
    releases    which releases are too old, and which have known faults

gRPC is imported in this package only. etcd's leases and progress notifications are not used: the
first cannot prove identity, the second are wrong in released versions.
"""

from restow.storage.etcd.options import EtcdOptions, parse_address
from restow.storage.etcd.storage import EtcdStorage, open_etcd

__all__ = ["EtcdOptions", "EtcdStorage", "open_etcd", "parse_address"]
