"""ConversionReview: the request to a conversion webhook, and the validation of its response.

The response may change everything in an object except its type, name, namespace and uid. Of its
metadata only labels and annotations are taken; everything else keeps its value. One invalid object
invalidates the whole response.

Pure: bytes in, bytes out. Not here: calling webhooks (`restow.apiserver.webhooks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import orjson

from restow.apimachinery.errors import ConversionFailed
from restow.apimachinery.metadata_rules import annotation_problems, label_problems
from restow.apimachinery.status_error import StatusCause

Object = dict[str, Any]

GROUP: Final = "apiextensions.k8s.io"
KIND: Final = "ConversionReview"
SUPPORTED: Final = ("v1", "v1beta1")

MESSAGE_CHARACTERS_MAX: Final = 1024
"""Maximum length of an error message, which may quote the response."""
SHOWN_CHARACTERS_MAX: Final = 128

_CHECKED_MAPS: Final[tuple[tuple[str, Callable[[dict[str, str]], list[StatusCause]]], ...]] = (
    ("labels", label_problems),
    ("annotations", annotation_problems),
)
# Go's names of the JSON types; people search for these messages.
_TYPE_NAMES: Final = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    type(None): "<nil>",
}


def review_version(offered: Iterable[str]) -> str:
    """Return the first version that the webhook and this server support; empty if there is none."""
    return next((each for each in offered if each in SUPPORTED), "")


def write_review(objects: Sequence[bytes], *, target: str, uid: str, version: str) -> bytes:
    """Return the request: these objects, each as JSON, to be converted to an `apiVersion`."""
    head = {"kind": KIND, "apiVersion": f"{GROUP}/{version}"}
    request = {"uid": uid, "desiredAPIVersion": target}
    # Each part ends with a brace, before which the rest is inserted: objects are not parsed again.
    return b'%b,"request":%b,"objects":[%b]}}' % (
        orjson.dumps(head)[:-1],
        orjson.dumps(request)[:-1],
        b",".join(objects),
    )


def read_review(
    body: bytes, originals: Sequence[Object], *, target: str, uid: str, version: str
) -> list[Object]:
    """Return the converted objects, in order. Raises `ConversionFailed` for an invalid response."""
    about = kind_text(originals[0])
    try:
        converted = _converted_objects(body, uid=uid, version=version)
    except ConversionFailed as error:
        raise failure(about, str(error)) from error
    if len(converted) != len(originals):
        raise _wrong(about, f"returned {len(converted)} objects, expected {len(originals)}")
    is_single = len(originals) == 1
    found = []
    for index, (original, obj) in enumerate(zip(originals, converted, strict=True)):
        where = f"index {index}: "
        what = "object at" if is_single else "converted object at"
        try:
            _check_type(obj, original, target)
        except ConversionFailed as error:
            raise _wrong(about, f"returned invalid {what} {where}{error}") from error
        try:
            _check_identity(obj, original)
        except ConversionFailed as error:
            where = "object: " if is_single else f"{what} {where}"
            raise _wrong(about, f"returned invalid {where}{error}") from error
        try:
            found.append(_with_metadata_of(original, obj))
        except ConversionFailed as error:
            where = "metadata: " if is_single else f"metadata in object at {where}"
            raise _wrong(about, f"returned invalid {where}{error}") from error
    return found


def failure(about: str, why: str) -> ConversionFailed:
    """Return the error of a failed conversion; `about` is a `kind_text`."""
    return _wrong(about, f"failed: {why}")


def kind_text(obj: Object) -> str:
    """Format the type of an object."""
    return f"{_shown(obj.get('apiVersion'))}, Kind={_shown(obj.get('kind'))}"


def _wrong(about: str, what: str) -> ConversionFailed:
    return ConversionFailed(f"conversion webhook for {about} {what}"[:MESSAGE_CHARACTERS_MAX])


def _converted_objects(body: bytes, *, uid: str, version: str) -> list[Any]:
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ConversionFailed(f"couldn't get version/kind; json parse error: {error}") from error
    if not isinstance(review, dict):
        raise ConversionFailed(f"the response is {_type_name(review)}, not a {KIND}")
    is_strict = version != "v1beta1"  # webhooks of v1beta1 were not required to set the type
    wanted = f"{GROUP}/{version}"
    if is_strict and (review.get("apiVersion"), review.get("kind")) != (wanted, KIND):
        raise ConversionFailed(
            f"expected webhook response of {wanted}, Kind={KIND}, got {kind_text(review)}"
        )
    response = review.get("response")
    if not isinstance(response, dict):
        raise ConversionFailed("no response provided")
    if is_strict and response.get("uid") != uid:
        sent = _shown(response.get("uid"))
        raise ConversionFailed(f'expected response.uid="{uid}", got "{sent}"')
    result = response.get("result")
    _check_result(result if isinstance(result, dict) else {})
    objects = response.get("convertedObjects")
    return objects if isinstance(objects, list) else []


def _check_result(result: Object) -> None:
    state = result.get("status")
    if state == "Success":
        return
    message = result.get("message")
    if isinstance(message, str) and message:
        raise ConversionFailed(message)
    raise ConversionFailed(f"response.result.status was '{_shown(state)}', not 'Success'")


def _check_type(obj: Any, original: Object, target: str) -> None:
    if not isinstance(obj, dict):
        raise ConversionFailed(f"it is {_type_name(obj)}, not an object")
    if not obj.get("kind"):
        raise ConversionFailed("Object 'Kind' is missing")
    if obj.get("apiVersion") != target:
        sent = _shown(obj.get("apiVersion"))
        raise ConversionFailed(f"invalid groupVersion (expected {target}, received {sent})")
    if obj["kind"] != original["kind"]:
        raise ConversionFailed(
            f"invalid kind (expected {original['kind']}, received {_shown(obj['kind'])})"
        )


def _check_identity(obj: Object, original: Object) -> None:
    metadata = obj.get("metadata")
    sent = metadata if isinstance(metadata, dict) else {}
    before = original["metadata"]
    for field, name in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        old, new = before.get(field) or "", sent.get(field) or ""
        if old != new:
            raise ConversionFailed(f"must have the same {name}: {old} != {_shown(new)}")


def _with_metadata_of(original: Object, obj: Object) -> Object:
    """Return the converted object with its original metadata, except labels and annotations."""
    if "metadata" not in obj:
        raise ConversionFailed("missing metadata in converted object")
    sent = obj["metadata"]
    if not isinstance(sent, dict):
        raise ConversionFailed(f"invalid metadata of type {_type_name(sent)} in converted object")
    metadata = dict(original["metadata"])
    for field, problems_of in _CHECKED_MAPS:
        values = sent.get(field)
        if values is None:
            metadata.pop(field, None)
            continue
        _check_texts(field, values)
        if values != metadata.get(field) and (problems := problems_of(values)):
            texts = [str(problem) for problem in problems]
            raise ConversionFailed(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
        metadata[field] = values
    return {**obj, "metadata": metadata}


def _check_texts(field: str, values: Any) -> None:
    if not isinstance(values, dict):
        raise ConversionFailed(
            f"invalid metadata.{field} of type {_type_name(values)} in converted object"
        )
    for key, value in values.items():
        if not isinstance(value, str):
            raise ConversionFailed(
                f"metadata.{field}[{_shown(key)}] must be a string, but is {_type_name(value)} in"
                " converted object"
            )


def _shown(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else str(value)
    return text[:SHOWN_CHARACTERS_MAX]


def _type_name(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), type(value).__name__)
