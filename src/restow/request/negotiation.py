"""Content negotiation: the media type, and whether to return objects, a Table or metadata only.

Clauses of Accept are tried in order of q, then as written; the first supported one wins. There is
one exception: objects are cached as JSON, and encoding protobuf takes time, so a client that
accepts both gets protobuf only for small responses. Pure.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, NamedTuple

from restow.apimachinery import status

As = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
Media = Literal["json", "yaml", "protobuf"]
Purpose = Literal["object", "watch", "review", "document"]
"""The kind of response: objects, a stream of them, a document without metadata, or another."""
Protobuf = Literal["preferred", "spared", "metadata"]
"""When to use protobuf. `preferred`: if the client prefers it. `spared`: only if it does not accept
JSON. `metadata`: as `spared`, and only for metadata, because the rest has no protobuf encoding."""

ACCEPT_LENGTH_MAX: Final = 8192
_MEDIA: Final[dict[str, Media]] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/vnd.kubernetes.protobuf": "protobuf",
}
_ANY: Final = frozenset({"*/*", "application/*", ""})
_CONVERSIONS: Final[dict[tuple[str, str, str], As]] = {
    ("Table", "meta.k8s.io", "v1"): "Table",
    ("PartialObjectMetadata", "meta.k8s.io", "v1"): "PartialObjectMetadata",
    ("PartialObjectMetadataList", "meta.k8s.io", "v1"): "PartialObjectMetadataList",
}
_DISCOVERY: Final = ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2")


class Form(NamedTuple):
    """The negotiated form of a response."""

    media: Media = "json"
    as_kind: As = ""
    discovery: bool = False
    """Aggregated discovery was requested."""
    or_json: bool = False
    """The client also accepts it as JSON."""


PLAIN: Final = Form()
PLAIN_ACCEPTS: Final = (
    "application/json",
    "",
    "*/*",
    "application/json, */*",
    # What Go clients send. A get in JSON is the fastest path, so they get JSON.
    "application/vnd.kubernetes.protobuf,application/json",
    "application/vnd.kubernetes.protobuf, */*",
)
PRETTY_AGENTS: Final = ("curl", "Wget", "Mozilla/5.0")
"""Interactive clients, which get indented JSON."""
ANYTHING_OR_JSON: Final = frozenset({"", "application/json", "*/*", "application/json, */*"})


class _Clause(NamedTuple):
    quality: float
    media_type: str
    parameters: dict[str, str]


@lru_cache(maxsize=512)
def negotiate(accept: str, purpose: Purpose = "object", protobuf: Protobuf = "spared") -> Form:
    """Select the form for an Accept header. Raises 406 if no clause is supported."""
    if accept in ANYTHING_OR_JSON:
        return PLAIN
    if len(accept) > ACCEPT_LENGTH_MAX:
        raise status.not_acceptable(_MEDIA)
    clauses = sorted(map(_clause, accept.split(",")), key=lambda clause: -clause.quality)
    found = (_form(clause, purpose, protobuf) for clause in clauses)
    forms = [form for form in found if form is not None]
    if not forms:
        raise status.not_acceptable(_MEDIA)
    if forms[0].media != "protobuf":
        return forms[0]
    in_json = forms[0]._replace(media="json")
    if in_json not in forms:
        return forms[0]
    return forms[0]._replace(or_json=True) if protobuf == "preferred" else in_json


def _form(clause: _Clause, purpose: Purpose, protobuf: Protobuf) -> Form | None:
    if clause.quality <= 0:
        return None
    media = "json" if clause.media_type in _ANY else _MEDIA.get(clause.media_type)
    if media is None or (media == "yaml" and purpose == "watch"):
        return None
    wanted = clause.parameters.get("as")
    if not wanted:
        is_there = media != "protobuf" or protobuf != "metadata"
        return Form(media) if is_there else None
    names = (wanted, clause.parameters.get("g", ""), clause.parameters.get("v", ""))
    if purpose == "document":
        is_discovery = names == _DISCOVERY and media == "json"
        return Form(media, discovery=True) if is_discovery else None
    as_kind = _CONVERSIONS.get(names) if purpose != "review" else None
    if as_kind is None or (as_kind == "Table" and media == "protobuf"):
        return None
    return Form(media, as_kind)


def _clause(text: str) -> _Clause:
    media_type, *rest = (part.strip() for part in text.split(";"))
    parameters: dict[str, str] = {}
    for part in rest:
        name, _, value = part.partition("=")
        parameters[name.strip().lower()] = value.strip().strip('"')
    try:
        quality = float(parameters.get("q", "1"))
    except ValueError:
        quality = 0.0
    return _Clause(quality if quality <= 1 else 1.0, media_type.lower(), parameters)
