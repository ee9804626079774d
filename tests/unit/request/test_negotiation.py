"""Content negotiation by the Accept header."""

from __future__ import annotations

import pytest

from restow.apimachinery.status import StatusError
from restow.request.negotiation import As, Form, Protobuf, Purpose, negotiate

PB = "application/vnd.kubernetes.protobuf"
GO = f"{PB},application/json"
META = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
AS_META: As = "PartialObjectMetadata"
TABLE = ";as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "protobuf", "form"),
    [
        ("", "preferred", Form()),
        ("*/*", "preferred", Form()),
        ("application/json, */*", "preferred", Form()),
        ("application/yaml", "preferred", Form("yaml")),
        (GO, "preferred", Form("protobuf", or_json=True)),
        (GO, "spared", Form()),
        (GO, "metadata", Form()),
        (f"{PB}, */*", "preferred", Form("protobuf", or_json=True)),
        (f"{PB}, */*", "spared", Form()),
        (f"application/json,{PB}", "preferred", Form()),
        (f"application/json;q=0.5,{PB}", "preferred", Form("protobuf", or_json=True)),
        (f"{PB},application/yaml", "spared", Form("protobuf")),
        (PB, "preferred", Form("protobuf")),
        (PB, "spared", Form("protobuf")),
        (f"{PB};stream=watch", "spared", Form("protobuf")),
        (f"{PB}{META}", "metadata", Form("protobuf", AS_META)),
        # The same form in JSON is acceptable; a full object instead is not.
        (f"{PB}{META},application/json{META},application/json", "spared", Form("json", AS_META)),
        (f"{PB}{META},application/json", "spared", Form("protobuf", AS_META)),
        (f"{PB}{TABLE},application/json{TABLE}", "preferred", Form("json", "Table")),
    ],
)
def test_the_form_of_an_object(accept: str, protobuf: Protobuf, form: Form) -> None:
    """Protobuf is used if preferred or if nothing else is accepted; otherwise JSON."""
    assert negotiate(accept, "object", protobuf) == form


@pytest.mark.parametrize(
    ("accept", "purpose", "protobuf"),
    [
        ("text/html", "object", "preferred"),
        (PB, "object", "metadata"),
        (f"{PB};q=0", "object", "preferred"),
        (f"{PB}{TABLE}", "object", "preferred"),
        (f"{PB}{META}", "review", "preferred"),
        ("application/yaml", "watch", "preferred"),
        ("application/cbor", "object", "preferred"),
    ],
)
def test_unsupported_types(accept: str, purpose: Purpose, protobuf: Protobuf) -> None:
    """If no clause is supported, the response is 406."""
    with pytest.raises(StatusError) as refused:
        negotiate(accept, purpose, protobuf)
    assert refused.value.code == 406
