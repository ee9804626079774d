"""`python -m benchmarks.managers.untracked serve ...`: a server that tracks no field managers.

It is the same server, with two of its parts replaced before they are used: no request has a
manager, and neither do the server's own writes. Apply is not possible. Only a benchmark needs such
a server, so the product has no switch for it.
"""

from __future__ import annotations

import sys

from restow.endpoints import field_manager


def _no_manager(_context: object) -> None:
    """No manager for any request."""


def main() -> int:
    field_manager.manager_of = _no_manager  # type: ignore[assignment]
    # Import only now: the modules import the manager function by this name.
    from restow.cli.main import main as run  # noqa: PLC0415
    from restow.registry.write_options import ObjectWriteOptions  # noqa: PLC0415

    defaults = ObjectWriteOptions.__init__.__kwdefaults__
    assert defaults is not None
    assert defaults["manager"] is not None
    defaults["manager"] = None
    return run()


if __name__ == "__main__":
    sys.exit(main())
