"""OpenAPI documents: what clients read to validate, to merge and to explain.

`v3_document` makes one document for a group version, `v3_index` lists them, `v2_document` makes the
one old document, as JSON or as the protobuf that old clients insist on. The caller says what is
served by `ServedKind` values, and keeps the `Document` values it gets: they hold only compressed
bytes. Nothing is built when this package is imported.

Not here: HTTP, and the catalogue that says what a server hosts.
"""

from restow.serving.openapi.documents import Document, fingerprint
from restow.serving.openapi.served import ApiInfo, ServedKind, ServedSubresource
from restow.serving.openapi.v2 import V2_PROTOBUF_ACCEPTED, V2_PROTOBUF_ANSWERED, v2_document
from restow.serving.openapi.v3 import document_path, group_versions, v3_document, v3_index

__all__ = [
    "V2_PROTOBUF_ACCEPTED",
    "V2_PROTOBUF_ANSWERED",
    "ApiInfo",
    "Document",
    "ServedKind",
    "ServedSubresource",
    "document_path",
    "fingerprint",
    "group_versions",
    "v2_document",
    "v3_document",
    "v3_index",
]
