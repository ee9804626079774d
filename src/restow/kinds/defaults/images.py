"""What the name of an image says about when to pull it.

Not here: images themselves.
"""

from __future__ import annotations

from typing import Any


def pull_policy(image: Any) -> str:
    """An image that may change under its name is pulled each time."""
    if not isinstance(image, str) or not image:
        return "IfNotPresent"
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    if tag == "latest" or not (tag or digest):
        return "Always"
    return "IfNotPresent"
