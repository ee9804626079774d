"""Output that all commands share: errors and JSON."""

import sys
from typing import Any

import orjson

from restow.apimachinery.status import Unauthorized

_UNAUTHORIZED = (
    "the server does not accept the credential: check the user of the kubeconfig, and whether its"
    " token or certificate has expired"
)


def fail(command: str, error: object, code: int) -> int:
    """Print on standard error why a command failed, and return the exit code."""
    advice = f": {_UNAUTHORIZED}" if isinstance(error, Unauthorized) else ""
    print(f"restow {command}: {error}{advice}", file=sys.stderr)
    return code


def print_json(value: Any) -> None:
    """Print indented JSON."""
    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
