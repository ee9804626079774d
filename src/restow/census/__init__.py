"""The census: determines how objects are stored, from the raw values of a store, without schemas.

    values          one value: its form, its version, how it is encrypted
    resource_names  one key: the resource it belongs to
    targets         the target version of each resource, according to the store itself
    counter         counts of values by location, form and key; servers use it for StorageScans
    tally           counts of objects per resource, and of stale objects
    keys            objects that are still encrypted with one key

It only reads. Not here: reading keys and values (`restow.storage.sources`), and reading a SQLite
file or a running etcd without changing it (`storage.sqlite.read_only`, `storage.etcd.read_only`).
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
