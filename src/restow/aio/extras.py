"""Optional dependencies: the extra of the package that installs each, and a hint if one is missing.

`pip install restow` installs what commands against a running API need. The libraries of a server,
of etcd and of the storage suite belong to extras (`pyproject.toml`) and are imported where they are
used. `missing_extra` turns the ImportError of such a library into a hint.

Not here: imports of these libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Final

__all__ = ["EXTRAS", "missing_extra", "require_extra"]

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "etcd": ("google.protobuf", "grpc"),
    "server": ("apsw", "httptools", "isal", "jsonschema_rs", "nacl", "re2", "uvloop", "wsproto"),
    "testing": ("pytest",),
}
"""The modules of each extra, by import name."""


def missing_extra(error: BaseException) -> str:
    """Return the hint for an error that was caused by a missing extra; empty for other errors.

    It is the end of a sentence whose subject is the feature that needs the extra.
    """
    for each in _causes(error):
        if isinstance(each, ModuleNotFoundError) and each.name is not None:
            top = each.name.partition(".")[0]
            for extra, modules in EXTRAS.items():
                if top in (module.partition(".")[0] for module in modules):
                    return f"needs the extra '{extra}': pip install 'restow[{extra}]'"
    return ""


def require_extra(extra: str) -> None:
    """Raise ModuleNotFoundError if a library of this extra is missing. Imports none of them."""
    for module in EXTRAS[extra]:
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes, and the members of exception groups."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    elif error.__cause__ is not None:
        yield from _causes(error.__cause__)
