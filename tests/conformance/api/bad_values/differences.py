"""Differences from kube-apiserver 1.36, with reasons.

All cases were sent to both: 97 of 100 answers had the same code and reason. This file lists the
rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.conformance.api.bad_values.matrix import BODIES, CREATE, PATCHES, UPDATE

ACCEPTED: Final = 200
_YAML: Final = ("create YAML", "update YAML")
_JSON: Final = ("create JSON", "update JSON", *PATCHES)
_NO_VERSION: Final = (
    "config map: version of letters",
    "config map: version negative",
    "config map: version of a fraction",
    "config map: version in other digits",
)
_BAD_TEXT: Final = (
    "value: a lone surrogate",
    "value: surrogates in the wrong order",
    "value: broken UTF-8",
    "value: overlong UTF-8",
    "value: a surrogate in UTF-8",
    "value: beyond Unicode",
    "value: UTF-8 cut off",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Some cases with some verbs: the reference's code, and why restow's differs."""

    code: int
    names: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str

    def requests(self) -> Iterator[tuple[str, str]]:
        return ((name, verb) for name in self.names for verb in self.verbs)


DIFFERENCES: Final = (
    Difference(
        ACCEPTED, _BAD_TEXT, _JSON,
        "There each bad character silently becomes U+FFFD, so what is stored is not what was sent.",
    ),
    Difference(
        ACCEPTED, ("value: an integer of 5000 digits",), _YAML,
        "There it becomes a text. A number that fits nowhere is refused in every form.",
    ),
    Difference(
        ACCEPTED, ("value: a tag of bytes",), _YAML, "No tag of YAML makes sense in a JSON value."
    ),
    Difference(
        422, ("value: an integer of 65 bits", "value: lists, 300 deep", "value: objects, 300 deep"),
        PATCHES,
        "There it is read and then does not fit. Here no number changes while it is read, and the"
        " limit of depth is lower; so it is not read.",
    ),
    Difference(
        500, _NO_VERSION, (*UPDATE, *PATCHES), "There it is found out by the store, as a 500."
    ),
    Difference(
        ACCEPTED, (*_NO_VERSION, "config map: version of 64 bits and more"), CREATE,
        "A fresh object has no version, whatever is meant by it; there only a number is refused.",
    ),
    Difference(
        500,
        ("config map: version long ago", "config map: version to come",
         "config map: version of 63 bits and more"),
        CREATE, "There it is refused as a 500.",
    ),
    Difference(
        500, ("config map: version of 64 bits and more",), (*UPDATE, *PATCHES),
        "There it is found out by the store, as a 500. Here it is a version that is not the"
        " object's.",
    ),
    Difference(
        500, ("pod: container of a text", "validating webhook: webhook of a text"),
        ("strategic patch",), "There merging fails, as a 500.",
    ),
    Difference(
        ACCEPTED,
        ("config map: kind of another", "config map: kind in small letters",
         "config map: kind unknown", "config map: kind with NUL",
         "deployment: kind of another in another group", "config map: version of API unknown",
         "config map: version of API of another group",
         "config map: version of API with two slashes"),
        ("strategic patch",),
        "There such a patch is read into the type it is sent to, and what it says of its type is"
        " dropped. Here all patches are alike.",
    ),
    Difference(
        ACCEPTED, ("deployment: version of API from of old",), PATCHES,
        "There the type of `extensions/v1beta1` is still known, and converted. Here it is not.",
    ),
    Difference(
        422,
        ("config map: annotations of 256 KiB",
         "config map: annotations of 256 KiB of two bytes each", "config map: 8000 annotations",
         "config map: more than 1 MiB of data", "secret: more than 1 MiB of data"),
        _YAML, "The limit of a body in YAML is lower, since reading it takes so much longer.",
    ),
    Difference(
        400, ("body: 300 KiB of backslashes",), _YAML,
        "The limit of a body in YAML is lower, since reading it takes so much longer.",
    ),
    Difference(
        422, ("body: null", "body: spaces", "body: two objects", "body: a comment after it",
              "body: an alias bomb"),
        ("create YAML",),
        "There nothing, one of several documents, or what aliases stand for, is read as an object"
        " without a name. Here it is not read.",
    ),
    Difference(422, ("body: null",), ("create JSON",), "There it is an object without a name."),
    Difference(
        ACCEPTED, ("body: null",), ("strategic patch", "JSON patch"),
        "There it is a patch that changes nothing. Whoever sends it has meant something.",
    ),
    Difference(
        ACCEPTED, ("body: UTF-16",), ("create YAML",), "Requests are in UTF-8, in every form."
    ),
    Difference(
        400, ("widget: inner with a bad name",), BODIES,
        "There metadata inside of an object is read into its type. Here its schema refuses it.",
    ),
    Difference(
        ACCEPTED, ("namespace: namespace of a namespace",), (*BODIES, *PATCHES),
        "There it is dropped. Whoever sends it has meant another object.",
    ),
)  # fmt: skip
