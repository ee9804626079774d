"""Stored values that cannot be served."""

import pytest

from restow.registry.stored_bytes import Splicer
from restow.storage.errors import StoreDamaged


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"[" * 1100 + b"]" * 1100, id="nested too deep for any decoder"),
        pytest.param(b"[" * 1010 + b"]" * 1010, id="nested too deep for one decoder"),
        pytest.param(b'"\xff"', id="not UTF-8"),
    ],
)
def test_values_that_cannot_be_decoded(data: bytes) -> None:
    """Values of other programs may be malformed. They are damaged and do not affect others."""
    head = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":'
    with pytest.raises(StoreDamaged):
        Splicer("ConfigMap", ("v1",)).serve(head + data + b"}", 5)
