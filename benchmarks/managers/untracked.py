"""`python -m benchmarks.managers.untracked serve ...`: a server whose writes nobody is told of.

It is the same server, with two of its parts replaced before they are used: no request has a
manager, and what the server writes itself has none. Nobody may apply. Only a benchmark needs such a
server, so the product has no switch for it.
"""

from __future__ import annotations

import sys

from restow.endpoints import field_manager


def _nobody(_context: object) -> None:
    """Who has sent a request."""


def main() -> int:
    field_manager.manager_of = _nobody  # type: ignore[assignment]
    # Only now: whoever asks for managers does so by this name.
    from restow.cli.main import main as run  # noqa: PLC0415
    from restow.registry.write_options import ObjectWriteOptions  # noqa: PLC0415

    defaults = ObjectWriteOptions.__init__.__kwdefaults__
    assert defaults is not None
    assert defaults["manager"] is not None
    defaults["manager"] = None
    return run()


if __name__ == "__main__":
    sys.exit(main())
