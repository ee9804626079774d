"""YAML documents in files of trusted users: kubeconfigs and manifests.

Not here: YAML of requests, which has limits (`yaml_codec`), of responses (`yaml_encoder`), and of
releases, with line numbers (`yaml_nodes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml


def load_document(data: bytes) -> Any:
    """Parse the only document. Raises ValueError; does not limit size or depth."""
    try:
        return yaml.safe_load(data)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error


def dump_document(document: Any) -> str:
    """Encode one document; keys keep their order."""
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text


def dump_documents(documents: Iterable[Any]) -> str:
    """Encode several documents; keys keep their order."""
    text: str = yaml.safe_dump_all(documents, sort_keys=False)
    return text
