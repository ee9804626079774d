"""The census: what a store really holds, read from its raw values, without any schema.

    values      one value: its form, its version, how it is encrypted
    naming      one key: the resource it belongs to
    targets     in which version each resource should be stored, as the store itself says
    tally       counts of all that, and what is left behind
    keys        what is left under one encryption key
    sources     where keys and values come from: a SQLite file, etcd, a snapshot file
    snapshot    an etcd snapshot: the newest revision of each key
    bolt        the database file inside a snapshot: pages and buckets

How a SQLite file and a running etcd are read without a trace is said in `storage.sqlite.read_only`
and `storage.etcd.read_only`, beside the libraries that do it.

It only ever reads. It is the one part of storage that looks into values. Of the rest of storage,
only backup and restore use it, and of it only the sources: it stands here because it has no use for
a server, only for what lies on disk.
"""

from restow.census.keys import KeyCount, count_key
from restow.census.resource_names import ResourceSelection
from restow.census.tally import Census, CensusVerdict, ResourceCount, Row, take_census
from restow.census.targets import CensusTarget
from restow.census.values import Stored
from restow.storage.sources import SOURCE_FORMS, KeyValueSource, open_source

__all__ = [
    "SOURCE_FORMS",
    "Census",
    "CensusTarget",
    "CensusVerdict",
    "KeyCount",
    "KeyValueSource",
    "ResourceCount",
    "ResourceSelection",
    "Row",
    "Stored",
    "count_key",
    "open_source",
    "take_census",
]
