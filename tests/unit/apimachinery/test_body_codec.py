"""Decoding of bodies by media type."""

import pytest

from restow.apimachinery import body_codec
from restow.apimachinery.status import UnsupportedMediaType


@pytest.mark.parametrize("media_type", ["", "application/json", "Application/JSON; charset=utf-8"])
def test_json_types(media_type: str) -> None:
    """A missing media type means JSON, and parameters are ignored."""
    assert body_codec.decode(b"{}", media_type) == ({}, ())


@pytest.mark.parametrize("media_type", ["text/plain", "application/cbor", "x", "application/xml"])
def test_other_types(media_type: str) -> None:
    """An unsupported media type is a 415."""
    with pytest.raises(UnsupportedMediaType):
        body_codec.decode(b"{}", media_type)


def test_yaml_type() -> None:
    """YAML is decoded by its own codec."""
    assert body_codec.decode(b"a: 1", "application/yaml; charset=utf-8") == ({"a": 1}, ())
