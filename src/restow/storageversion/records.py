"""Coordination keys besides the membership keys: encoders, epochs, selected versions.

None of them holds an API object.

| key                             | content                                                        |
|---------------------------------|----------------------------------------------------------------|
| `/restow/encoders/<id>/<name>`  | how a server writes a resource; the fence compares it          |
| `/restow/epoch/<name>`          | the agreement on a resource and how often it has changed       |
| `/restow/selected/<name>`       | the version that was voted for                                 |
| `/restow/modes`                 | the last server that joined in another mode than the others    |
| `/restow/modes/unreported`      | the last server that joined to write without reporting         |

`<name>` is the name of the StorageVersion: `<group>.<resource>`, with `core` for the core group.
Values are compared byte by byte, so each has exactly one encoding.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import orjson

from restow.apimachinery.names import GroupResource
from restow.apis import names
from restow.storage.errors import StoreDamaged
from restow.storage.interface import Key
from restow.storageversion.identity import ServerId
from restow.storageversion.rules import Agreement

ENCODERS_PREFIX: Final = "/restow/encoders/"
EPOCHS_PREFIX: Final = names.EPOCHS_PREFIX
SELECTED_PREFIX: Final = "/restow/selected/"
MODES_KEY: Final = Key("/restow/modes")
"""Written by a server that joins in another mode than the others, whose transactions it guards."""
UNREPORTED_KEY: Final = Key(f"{MODES_KEY}/unreported")
"""Written, together with `MODES_KEY`, in the transaction in which a server with mode `off` joins,
before its first write. The key stays after that server has left: the next server that registers
compares it with the mark on each StorageState."""
CORE_GROUP: Final = "core"
_HELD: Final = "held"


class Encoder(NamedTuple):
    """How a server writes a resource: version, encryption key, and CRD."""

    version: str
    key_id: str = ""
    definition: str = ""
    """The uid of a custom resource's CRD."""
    is_closing: bool = False
    """The server creates no more objects."""


class EpochRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agreement, how often it has changed, and the kind of the stored objects."""

    epoch: int
    kind: str
    version: str | None = None
    key_id: str = ""
    is_custom: bool = False
    """Whether it is a custom resource, whose CRD may be deleted."""
    location: str = ""
    """The form of the keys under which the last server that registered stores objects; empty:
    unknown."""

    @property
    def agreement(self) -> Agreement | None:
        return None if self.version is None else Agreement(self.version, self.key_id)


def name_of(resource: GroupResource) -> str:
    """Return the name of a resource in StorageVersions and keys."""
    return f"{resource.group or CORE_GROUP}.{resource.resource}"


def resource_of_name(name: str) -> GroupResource:
    group, _, resource = name.rpartition(".")
    return GroupResource("" if group == CORE_GROUP else group, resource)


def encoder_key(server_id: ServerId, name: str) -> Key:
    return Key(f"{ENCODERS_PREFIX}{server_id}/{name}")


def parse_encoder_key(key: Key) -> tuple[ServerId, str]:
    """Return the server and the resource name."""
    server_id, _, name = key.removeprefix(ENCODERS_PREFIX).partition("/")
    return ServerId(server_id), name


def encode_encoder(encoder: Encoder) -> bytes:
    fields: dict[str, object] = {"version": encoder.version, "key": encoder.key_id}
    if encoder.definition:
        fields |= {"definition": encoder.definition, "closing": encoder.is_closing}
    return orjson.dumps(fields)


def held_encoder(value: bytes, nonce: str) -> bytes:
    """Return a held encoder value, which no write is guarded by: the server's entry is not yet
    accepted by the main servers."""
    return orjson.dumps({**orjson.loads(value), _HELD: nonce})


def open_encoder(value: bytes) -> bytes:
    """Return an encoder value without the hold."""
    fields = orjson.loads(value)
    fields.pop(_HELD, None)
    return orjson.dumps(fields)


def is_held(value: bytes) -> bool:
    return _HELD in orjson.loads(value)


def epoch_key(name: str) -> Key:
    return Key(EPOCHS_PREFIX + name)


def encode_epoch(record: EpochRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_epoch(value: bytes) -> EpochRecord:
    try:
        return msgspec.json.decode(value, type=EpochRecord)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"cannot decode an epoch record: {error}") from error


def selected_key(name: str) -> Key:
    return Key(SELECTED_PREFIX + name)
