"""Status errors: messages, wire format, and parsing."""

import inspect
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery import field_errors, status
from restow.apimachinery.errors import ConversionFailed, InvalidName, UnknownKind
from restow.apimachinery.names import GroupKind, GroupResource
from restow.apimachinery.status import Details, StatusCause, StatusError
from restow.apimachinery.status_decoder import CLASSES, status_from_dict, status_from_response

CONFIG_MAPS = GroupResource("", "configmaps")
DEPLOYMENTS = GroupResource("apps", "deployments")
CAUSE = StatusCause("FieldValueRequired", "Required value", "spec.x")

# Each error function, with code, reason and message.
ERRORS: list[tuple[StatusError, int, str, str]] = [
    (status.bad_request("no"), 400, "BadRequest", "no"),
    (
        status.strict_decoding(['unknown field "a"', 'duplicate field "b.c"']),
        400,
        "BadRequest",
        'strict decoding error: unknown field "a", duplicate field "b.c"',
    ),
    (status.unauthorized(), 401, "Unauthorized", "Unauthorized"),
    (
        status.cannot("jane", "get", resource=DEPLOYMENTS, name="web", namespace="prod"),
        403,
        "Forbidden",
        (
            'deployments.apps "web" is forbidden: User "jane" cannot get resource "deployments" in '
            'API group "apps" in the namespace "prod"'
        ),
    ),
    (
        status.cannot("jane", "list", resource=CONFIG_MAPS),
        403,
        "Forbidden",
        (
            'configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group '
            '"" at the cluster scope'
        ),
    ),
    (
        status.cannot("jane", "update", resource=CONFIG_MAPS, subresource="status"),
        403,
        "Forbidden",
        (
            'configmaps is forbidden: User "jane" cannot update resource "configmaps/status" in '
            'API group "" at the cluster scope'
        ),
    ),
    (
        status.cannot_path("jane", "get", path="/metrics"),
        403,
        "Forbidden",
        'forbidden: User "jane" cannot get path "/metrics"',
    ),
    (
        status.namespace_terminating(CONFIG_MAPS, "a", namespace="old"),
        403,
        "Forbidden",
        (
            'configmaps "a" is forbidden: unable to create new content in namespace old because it '
            "is being terminated"
        ),
    ),
    (status.not_found(CONFIG_MAPS, "x"), 404, "NotFound", 'configmaps "x" not found'),
    (status.not_found(DEPLOYMENTS, "x"), 404, "NotFound", 'deployments.apps "x" not found'),
    (
        status.resource_not_found(),
        404,
        "NotFound",
        "the server could not find the requested resource",
    ),
    (
        status.method_not_allowed(),
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    ),
    (
        status.method_not_allowed(DEPLOYMENTS, "watch"),
        405,
        "MethodNotAllowed",
        'watch is not supported on resources of kind "deployments.apps"',
    ),
    (
        status.not_acceptable(["a/b", "c/d"]),
        406,
        "NotAcceptable",
        "only the following media types are accepted: a/b, c/d",
    ),
    (
        status.already_exists(CONFIG_MAPS, "x"),
        409,
        "AlreadyExists",
        'configmaps "x" already exists',
    ),
    (
        status.already_exists(CONFIG_MAPS, "x", is_being_deleted=True),
        409,
        "AlreadyExists",
        'object is being deleted: configmaps "x" already exists',
    ),
    (
        status.generated_name_taken(CONFIG_MAPS, "x-abcde"),
        409,
        "AlreadyExists",
        (
            'configmaps "x-abcde" already exists, the server was not able to generate a unique '
            "name for the object"
        ),
    ),
    (
        status.conflict(DEPLOYMENTS, "web"),
        409,
        "Conflict",
        (
            'Operation cannot be fulfilled on deployments.apps "web": the object has been '
            "modified; please apply your changes to the latest version and try again"
        ),
    ),
    (
        status.precondition_failed(CONFIG_MAPS, "x", what="UID", wanted="a", found="b"),
        409,
        "Conflict",
        (
            'Operation cannot be fulfilled on configmaps "x": Precondition failed: UID in '
            "precondition: a, UID in object meta: b"
        ),
    ),
    (
        status.apply_conflict(
            [StatusCause("FieldManagerConflict", 'conflict with "kubectl"', ".spec.replicas")]
        ),
        409,
        "Conflict",
        'Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas',
    ),
    (status.gone("it was"), 410, "Gone", "it was"),
    (status.expired("too old", continue_token="abc"), 410, "Expired", "too old"),
    (
        status.resource_version_too_old(5, 9),
        410,
        "Expired",
        "too old resource version: 5 (9)",
    ),
    (status.too_large("no"), 413, "RequestEntityTooLarge", "no"),
    (
        status.body_too_large(10),
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 10",
    ),
    (
        status.unsupported_media_type(["a/b"]),
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: a/b",
    ),
    (
        status.invalid(GroupKind("apps", "Deployment"), "web", [CAUSE]),
        422,
        "Invalid",
        'Deployment.apps "web" is invalid: spec.x: Required value',
    ),
    (
        status.invalid(GroupKind("", "Pod"), "a", [CAUSE, StatusCause("r", "other", "b"), CAUSE]),
        422,
        "Invalid",
        'Pod "a" is invalid: [spec.x: Required value, b: other]',
    ),
    (status.invalid(GroupKind("", "Pod"), "a", []), 422, "Invalid", 'Pod "a" is invalid'),
    (
        status.invalid_patch("no path"),
        422,
        "Invalid",
        "the server rejected our request due to an error in our request: no path",
    ),
    (
        status.too_many_requests(),
        429,
        "TooManyRequests",
        "Too many requests, please try again later.",
    ),
    (status.internal("oops"), 500, "InternalError", "Internal error occurred: oops"),
    (
        status.server_timeout(CONFIG_MAPS, "get"),
        500,
        "ServerTimeout",
        (
            "The GET operation against configmaps could not be completed at this time, please try "
            "again."
        ),
    ),
    (status.unavailable("not ready"), 503, "ServiceUnavailable", "not ready"),
    (status.timeout("too slow"), 504, "Timeout", "Timeout: too slow"),
    (
        status.resource_version_too_large(9, 5),
        504,
        "Timeout",
        "Timeout: Too large resource version: 9, current: 5",
    ),
]
ids = [f"{code}-{reason}-{index}" for index, (_, code, reason, _) in enumerate(ERRORS)]


@pytest.mark.parametrize(("error", "code", "reason", "message"), ERRORS, ids=ids)
def test_messages(error: StatusError, code: int, reason: str, message: str) -> None:
    """Each error has the code, reason and message of Kubernetes."""
    assert (error.code, error.reason, error.message) == (code, reason, message)
    body = orjson.loads(error.to_bytes())
    assert body["kind"] == "Status"
    assert body["apiVersion"] == "v1"
    assert body["status"] == "Failure"
    assert (body["code"], body["reason"], body["message"]) == (code, reason, message)


@pytest.mark.parametrize("error", [row[0] for row in ERRORS], ids=ids)
def test_round_trip(error: StatusError) -> None:
    """A client parses the same error that the server encoded."""
    read = status_from_response(error.code, error.to_bytes())
    assert type(read) is type(error)
    assert read.to_dict() == error.to_dict()


def test_all_classes_are_listed() -> None:
    """Every class can be parsed, and is listed in the docstring of its module."""
    classes = {
        each
        for each in vars(status).values()
        if inspect.isclass(each) and issubclass(each, StatusError) and each is not StatusError
    }
    assert classes == set(CLASSES)
    for each in classes:
        assert f"── {each.__name__}" in (status.__doc__ or "")


def test_details() -> None:
    """Details contain the plural for lookups, the kind for validation, and no empty members."""
    assert status.bad_request("x").to_dict().keys() == {
        *("kind", "apiVersion", "metadata", "status", "message", "reason", "code")
    }
    assert status.not_found(DEPLOYMENTS, "x").to_dict()["details"] == {
        "name": "x",
        "group": "apps",
        "kind": "deployments",
    }
    assert status.resource_not_found().to_dict()["details"] == {}
    assert status.invalid(GroupKind("apps", "Deployment"), "x", [CAUSE]).to_dict()["details"] == {
        "name": "x",
        "group": "apps",
        "kind": "Deployment",
        "causes": [
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.x"}
        ],
    }
    assert status.resource_version_too_large(9, 5).to_dict()["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    terminating = status.namespace_terminating(CONFIG_MAPS, "a", namespace="old").causes
    assert [(cause.reason, cause.field) for cause in terminating] == [
        ("NamespaceTerminating", "metadata.namespace")
    ]
    expired = status.expired("old", continue_token="abc").to_dict()
    assert expired["metadata"] == {"continue": "abc"}


def test_many_causes() -> None:
    """The message for an object with very many errors is limited."""
    causes = [StatusCause("r", "bad", f"spec.items[{index}]") for index in range(100_000)]
    error = status.invalid(GroupKind("", "Pod"), "a", causes)
    assert len(error.causes) == status.CAUSES_MAX
    assert error.message.endswith("and 99900 more]")
    assert len(error.to_bytes()) < 20_000


def test_names_cannot_break_messages() -> None:
    """Quotes, line breaks and invalid text in a name are escaped."""
    error = status.not_found(CONFIG_MAPS, 'a"b\n\ud800')
    assert orjson.loads(error.to_bytes())["message"] == 'configmaps "a\\"b\\n?" not found'


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (400, status.BadRequest),
        (404, status.NotFound),
        (409, status.Conflict),
        (410, status.Expired),
        (500, status.InternalError),
        (503, status.ServiceUnavailable),
        (418, StatusError),
        (502, StatusError),
    ],
)
def test_answers_without_status(code: int, wanted: type[StatusError]) -> None:
    """A body that is not a Status object becomes the error of its code, with the body as
    message.
    """
    error = status_from_response(code, b"404 page not found\n", retry_after_seconds=7)
    assert type(error) is wanted
    assert (error.code, error.message) == (code, "404 page not found")
    assert error.retry_after_seconds == 7
    assert status_from_response(code, b"").message == f"the server responded with {code}"


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
members = st.sampled_from(["code", "reason", "message", "details", "metadata", "causes", "name"])


@given(body=st.dictionaries(members, json_values | st.dictionaries(members, json_values)))
def test_any_status_is_read(body: dict[str, Any]) -> None:
    """Any JSON from another server becomes an error that can be encoded again."""
    error = status_from_dict({"kind": "Status", **body})
    assert orjson.loads(error.to_bytes())["code"] == error.code


def test_machinery_errors() -> None:
    """An invalid name is a client error, a failed conversion a server error."""
    assert status.of_machinery_error(InvalidName("x")).code == 400
    assert status.of_machinery_error(UnknownKind("x")).code == 400
    assert status.of_machinery_error(ConversionFailed("x")).code == 500


@pytest.mark.parametrize(
    ("cause", "reason", "text"),
    [
        (field_errors.required("a"), "FieldValueRequired", "a: Required value"),
        (field_errors.required("a", "now"), "FieldValueRequired", "a: Required value: now"),
        (
            field_errors.invalid("metadata.name", "X", "why"),
            "FieldValueInvalid",
            'metadata.name: Invalid value: "X": why',
        ),
        (
            field_errors.invalid("a", {"b": [1, None]}, "why"),
            "FieldValueInvalid",
            'a: Invalid value: {"b":[1,null]}: why',
        ),
        (
            field_errors.type_invalid("a", 1, "must be a string"),
            "FieldValueTypeInvalid",
            "a: Invalid value: 1: must be a string",
        ),
        (
            field_errors.not_supported("a", "x", ["b", "c"]),
            "FieldValueNotSupported",
            'a: Unsupported value: "x": supported values: "b", "c"',
        ),
        (field_errors.forbidden("a", "no"), "FieldValueForbidden", "a: Forbidden: no"),
        (field_errors.duplicate("a", "x"), "FieldValueDuplicate", 'a: Duplicate value: "x"'),
        (field_errors.not_found("a", "x"), "FieldValueNotFound", 'a: Not found: "x"'),
        (
            field_errors.too_long("a", length_max=5),
            "FieldValueTooLong",
            "a: Too long: may not be more than 5 bytes",
        ),
        (
            field_errors.too_many("a", count=4, count_max=3),
            "FieldValueTooMany",
            "a: Too many: 4: must have at most 3 items",
        ),
        (
            field_errors.immutable("a", True),
            "FieldValueInvalid",
            "a: Invalid value: true: field is immutable",
        ),
    ],
)
def test_field_errors(cause: StatusCause, reason: str, text: str) -> None:
    """Field errors have the reasons and messages of Kubernetes."""
    assert cause.reason == reason
    assert str(cause) == text


def test_large_values_are_cut() -> None:
    """An invalid value of any size or depth gives a short message."""
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    for value in ("x" * 10**6, ["x"] * 10**6, {"a": "x" * 10**6}, deep):
        assert len(field_errors.invalid("a", value, "no").message) < 600


def test_plain_error() -> None:
    """An error of any other code can be created, without a reason."""
    error = StatusError("teapot", code=418, details=Details(uid="u"))
    assert "reason" not in error.to_dict()
    assert error.to_dict()["details"] == {"uid": "u"}
    assert str(error) == "teapot"
