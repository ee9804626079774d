"""The default image pull policy.

Not here: images themselves.
"""

from __future__ import annotations

from typing import Any


def pull_policy(image: Any) -> str:
    """Return Always for an image whose tag may change, otherwise IfNotPresent."""
    if not isinstance(image, str) or not image:
        return "IfNotPresent"
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    if tag == "latest" or not (tag or digest):
        return "Always"
    return "IfNotPresent"
