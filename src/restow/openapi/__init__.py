"""OpenAPI documents: what clients read to validate, to merge and to explain.

`v3_document` makes one document for a group version, `v3_index_of` lists them, `v2_document` makes
the one old document, as JSON or as the protobuf that old clients insist on. The caller says what is
served by `ServedKind` values, and keeps the `Document` values it gets: they hold only compressed
bytes. A caller whose kinds change one by one keeps a `V2Part` for each and puts them together with
a `V2Assembly`, which also takes what other servers' documents say (`foreign_spec`). Nothing is
built when this package is imported.

Not here: HTTP, and the catalogue that says what a server hosts.
"""

from restow.openapi.aggregated_spec import ForeignDocumentBad, ForeignSpec, foreign_spec
from restow.openapi.documents import (
    Document,
    fingerprint,
    fingerprint_of,
    kind_digest,
)
from restow.openapi.served import (
    ApiInfo,
    SchemaSource,
    ServedKind,
    ServedSubresource,
    in_order,
)
from restow.openapi.v2 import (
    V2_PROTOBUF_ACCEPTED,
    V2_PROTOBUF_ANSWERED,
    V2Assembly,
    V2Part,
    v2_document,
)
from restow.openapi.v3 import (
    document_path,
    group_versions,
    v3_document,
    v3_index_of,
)
from restow.openapi.v3_conversion import converted

__all__ = [
    "V2_PROTOBUF_ACCEPTED",
    "V2_PROTOBUF_ANSWERED",
    "ApiInfo",
    "Document",
    "ForeignDocumentBad",
    "ForeignSpec",
    "SchemaSource",
    "ServedKind",
    "ServedSubresource",
    "V2Assembly",
    "V2Part",
    "converted",
    "document_path",
    "fingerprint",
    "fingerprint_of",
    "foreign_spec",
    "group_versions",
    "in_order",
    "kind_digest",
    "v2_document",
    "v3_document",
    "v3_index_of",
]
