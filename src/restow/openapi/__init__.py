"""OpenAPI documents, which clients use for validation, merging and `kubectl explain`.

`v3_document` builds the document of one group version, `v3_index_of` the index. The caller
describes the served kinds as `ServedKind` values, and caches the returned `Document` values, which
hold only compressed bytes. A `V2Assembly` makes the single v2 document, as JSON or protobuf, of one
`V2Part` per kind, which the caller caches as well, because kinds change one by one. It also merges
documents of aggregated servers (`foreign_spec`). Importing this package builds nothing.

Not here: HTTP, and the catalogue of hosted kinds.
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
    "v3_document",
    "v3_index_of",
]
