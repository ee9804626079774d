"""ConversionReview: the request, and validation of responses."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.conversion_review import (
    MESSAGE_CHARACTERS_MAX,
    read_review,
    review_version,
    write_review,
)
from restow.apimachinery.errors import ConversionFailed

V1, V2 = "example.com/v1", "example.com/v2"
WHAT = f"conversion webhook for {V1}, Kind=Gear"

Object = dict[str, Any]


def gear(name: str = "a", *, version: str = V1, **metadata: Any) -> Object:
    about = {"name": name, "namespace": "default", "uid": f"u-{name}", **metadata}
    return {"kind": "Gear", "apiVersion": version, "metadata": about, "spec": {"teeth": 1}}


def answer(*objects: Any, version: str = "v1", uid: str = "q-1", **response: Any) -> bytes:
    said = {
        "uid": uid,
        "result": {"status": "Success"},
        "convertedObjects": list(objects),
        **response,
    }
    review = {"kind": "ConversionReview", "apiVersion": f"apiextensions.k8s.io/{version}"}
    return orjson.dumps({**review, "response": said})


def read(body: bytes, *originals: Object, version: str = "v1") -> list[Object]:
    return read_review(body, originals or [gear()], target=V2, uid="q-1", version=version)


def refusal(body: bytes, *originals: Object, version: str = "v1") -> str:
    with pytest.raises(ConversionFailed) as raised:
        read(body, *originals, version=version)
    return str(raised.value)


def test_question() -> None:
    """The request contains the uid, the desired version, and the objects in order."""
    objects = [gear("a"), gear("b")]
    raw = write_review([orjson.dumps(each) for each in objects], target=V2, uid="q", version="v1")
    assert orjson.loads(raw) == {
        "kind": "ConversionReview",
        "apiVersion": "apiextensions.k8s.io/v1",
        "request": {"uid": "q", "desiredAPIVersion": V2, "objects": objects},
    }


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["v1"], "v1"), (["v2", "v1beta1", "v1"], "v1beta1"), (["v7"], ""), ([], "")],
)
def test_review_version(offered: list[str], chosen: str) -> None:
    """The first supported version is used, in the order of the CRD."""
    assert review_version(offered) == chosen


def test_metadata() -> None:
    """Labels and annotations are taken from the response, other metadata stay unchanged."""
    original = gear(generation=3, labels={"a": "1"}, annotations={"b": "2"}, finalizers=["x/y"])
    converted = gear(version=V2, generation=9, labels={"c": "3"}, managedFields=[])
    [found] = read(answer(converted), original)
    expected = {**original["metadata"], "labels": {"c": "3"}}
    del expected["annotations"]
    assert found == {**converted, "metadata": expected}
    assert original == gear(
        generation=3, labels={"a": "1"}, annotations={"b": "2"}, finalizers=["x/y"]
    )


def test_unchanged_labels_are_not_validated() -> None:
    """Values that were stored before a rule existed may stay; only changes are validated."""
    odd = {"a": "no label!"}
    assert read(answer(gear(version=V2, labels=odd)), gear(labels=odd))
    assert "metadata.labels: Invalid value" in refusal(answer(gear(version=V2, labels=odd)))


OBJECTS: list[tuple[Any, str]] = [
    (5, "returned invalid object at index 0: it is int64, not an object"),
    ({}, "returned invalid object at index 0: Object 'Kind' is missing"),
    (
        gear(),
        f"returned invalid object at index 0: invalid groupVersion (expected {V2}, received {V1})",
    ),
    (
        {**gear(version=V2), "kind": "Wheel"},
        "returned invalid object at index 0: invalid kind (expected Gear, received Wheel)",
    ),
    (gear("b", version=V2), "returned invalid object: must have the same name: a != b"),
    (
        gear(version=V2, namespace="x"),
        "returned invalid object: must have the same namespace: default != x",
    ),
    (gear(version=V2, uid=""), "returned invalid object: must have the same UID: u-a != "),
    (
        gear(version=V2, labels=["a"]),
        (
            "returned invalid metadata: invalid metadata.labels of type []interface {} in converted"
            " object"
        ),
    ),
    (
        gear(version=V2, annotations={"a": None}),
        (
            "returned invalid metadata: metadata.annotations[a] must be a string, but is <nil> in"
            " converted object"
        ),
    ),
]


@pytest.mark.parametrize(("obj", "message"), OBJECTS)
def test_wrong_object(obj: Any, message: str) -> None:
    """Each rule about converted objects is reported with Kubernetes' message."""
    assert refusal(answer(obj)) == f"{WHAT} {message}"


def test_wrong_object_among_many() -> None:
    """For several objects the message has the index of the invalid one."""
    originals = [gear("a"), gear("b")]
    wrong = answer(gear("a", version=V2), gear("c", version=V2))
    assert refusal(wrong, *originals) == (
        f"{WHAT} returned invalid converted object at index 1: must have the same name: b != c"
    )


def test_missing_metadata() -> None:
    """An object without metadata is rejected, even if there is nothing to keep."""
    bare = {**gear(), "metadata": {}}
    converted = {"kind": "Gear", "apiVersion": V2}
    expected = f"{WHAT} returned invalid metadata: missing metadata in converted object"
    assert refusal(answer(converted), bare) == expected


ANSWERS: list[tuple[bytes, str]] = [
    (b"{", "failed: couldn't get version/kind; json parse error: "),
    (b"[]", "failed: the response is []interface {}, not a ConversionReview"),
    (
        b'{"kind":"Status","apiVersion":"v1"}',
        (
            "failed: expected webhook response of apiextensions.k8s.io/v1,"
            " Kind=ConversionReview, got v1, Kind=Status"
        ),
    ),
    (
        b'{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"}',
        "failed: no response provided",
    ),
    (answer(uid="x"), 'failed: expected response.uid="q-1", got "x"'),
    (answer(result={"status": "Failed", "message": "not today"}), "failed: not today"),
    (answer(result={}), "failed: response.result.status was '', not 'Success'"),
    (answer(result=None), "failed: response.result.status was '', not 'Success'"),
    (answer(), "returned 0 objects, expected 1"),
    (answer(gear(), gear()), "returned 2 objects, expected 1"),
    (answer(convertedObjects=None), "returned 0 objects, expected 1"),
]


@pytest.mark.parametrize(("body", "message"), ANSWERS)
def test_wrong_answer(body: bytes, message: str) -> None:
    """An unsuccessful response, or one to another request, is rejected as a whole."""
    assert refusal(body).startswith(f"{WHAT} {message}")


def test_older_reviews() -> None:
    """Webhooks of v1beta1 need not set the type or the uid."""
    body = orjson.dumps(
        {"response": {"result": {"status": "Success"}, "convertedObjects": [gear(version=V2)]}}
    )
    assert read(body, version="v1beta1") == [gear(version=V2)]
    assert "expected webhook response" in refusal(body)


def test_messages_are_bounded() -> None:
    """Messages of a webhook are truncated."""
    long = "x" * 1_000_000
    said = refusal(answer(result={"status": "Failed", "message": long}))
    assert len(said) == MESSAGE_CHARACTERS_MAX
    assert len(refusal(answer(gear(long, version=V2)))) < MESSAGE_CHARACTERS_MAX


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "kind", "apiVersion", "metadata", "name", "uid", "labels", "response",
                    "result", "status", "convertedObjects", "namespace", "annotations",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(_VALUES, st.sampled_from(["v1", "v1beta1"]))
def test_any_answer(value: Any, version: str) -> None:
    """Any response is either converted or rejected."""
    bodies = [orjson.dumps(value), answer(value, version=version)]
    bodies.append(answer({**gear(version=V2), "metadata": value}, version=version))
    for body in bodies:
        try:
            [found] = read(body, gear(), version=version)
        except ConversionFailed:
            continue
        metadata = found["metadata"]
        assert (metadata["name"], metadata["uid"]) == ("a", "u-a")
