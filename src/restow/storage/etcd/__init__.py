"""The store in etcd: for more than one machine.

    storage     EtcdStorage and open_etcd: joins the parts below
    options     what a user may choose, and the URL form of it
    messages    etcd's messages and methods, as a table of facts
    connection  channels to the members, fail-over, deadlines, the auth token
    credentials what a client shows and whom it trusts, from files that are checked
    errors      the border: what gRPC and etcd say, as errors of storage
    encoding    keys, spans and transactions to messages, and back
    reading     get, range, count, and the shared question for the revision
    commit      one transaction; with `session` and `outcome_resolver`, for replies that were lost
    stream      one watch stream, cut into whole revisions
    hub         the stream that feeds all watches
    backlog     the stream of one watch that is behind the hub's memory
    read_only   pages of raw values at one revision, for the census
    snapshot    the whole database of a member, for a backup
    checkup     how each member is, for the doctor
    mending     what to do between a stream that failed and the next
    releases    which releases are too old, and which have known faults

gRPC is imported here and nowhere else. etcd's leases and progress notifications are not used: the
first cannot prove identity, the second are wrong in versions that people run.
"""

from restow.storage.etcd.options import EtcdOptions, parse_address
from restow.storage.etcd.storage import EtcdStorage, open_etcd

__all__ = ["EtcdOptions", "EtcdStorage", "open_etcd", "parse_address"]
