"""Decodes request bodies by media type.

Not here: the formats themselves (`codec`, `yaml_codec`), and protobuf, which needs the object's
type.
"""

from __future__ import annotations

from restow.apimachinery import codec
from restow.apimachinery.status import unsupported_media_type


def decode(
    body: bytes, media_type: str = codec.JSON, *, size_max: int = codec.BODY_SIZE_MAX
) -> codec.Decoded:
    """Decode the object in a request body; raises a 4xx if there is none.

    Call this outside the event loop if `codec.takes_long` returns True.
    """
    if media_type == codec.JSON:
        pass  # the media type that nearly every client sends, without parameters
    elif codec.is_yaml(media_type):
        from restow.apimachinery import yaml_codec  # noqa: PLC0415 - few servers ever need it

        return yaml_codec.decode(body, size_max=size_max)
    elif codec.media_type_name(media_type) != codec.JSON:
        raise unsupported_media_type(codec.MEDIA_TYPES)
    return codec.decode(body, size_max=size_max)
