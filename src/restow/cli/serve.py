"""`restow serve`: one API server, until it is told to stop."""

import argparse
import errno
import json
import logging
import sys
from pathlib import Path

import uvloop

from restow.apiserver.options import (
    COMPACTION_SECONDS_DEFAULT,
    EVENT_TTL_SECONDS_DEFAULT,
    PORT_DEFAULT,
    ServeOptions,
)
from restow.storage.opening import ADDRESS_FORMS

EXIT_REFUSED = 1
PORT_MAX = 65535

EPILOG = """\
What is not given is made once in the data directory: keys and certificates in DIR/pki, the store
in DIR/store.db, and DIR/kubeconfig for kubectl:

  restow serve --data-dir .restow
  kubectl --kubeconfig .restow/kubeconfig get namespaces

A server on another machine needs a copy of DIR/pki and a store that both can reach.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add = parser.add_argument
    add("--data-dir", type=Path, default=Path(".restow"), metavar="DIR", help="default: .restow")
    add("--store", default="", metavar="ADDRESS", help=f"{ADDRESS_FORMS}; default: in DIR")
    add(
        "--bind",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on; default: 127.0.0.1",
    )
    add("--port", type=_port, default=PORT_DEFAULT, help=f"0: any free one; default {PORT_DEFAULT}")
    add(
        "--release",
        type=Path,
        metavar="FILE",
        help="what to serve: a file, or a shipped name such as x+1; default: all built-in kinds",
    )
    add("--tls-cert-file", type=Path, metavar="FILE")
    add("--tls-private-key-file", type=Path, metavar="FILE")
    add("--client-ca-file", type=Path, metavar="FILE", help="trusted for client certificates")
    add("--token-auth-file", type=Path, metavar="FILE", help='token,user,uid,"group,group" lines')
    add("--service-account-signing-key-file", type=Path, metavar="FILE")
    add(
        "--compaction-interval",
        type=_seconds,
        default=COMPACTION_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="history for lists and watches is kept this long, at least; default: 5m",
    )
    add(
        "--event-ttl",
        type=_seconds,
        default=EVENT_TTL_SECONDS_DEFAULT,
        metavar="SECONDS",
        help="how long Events are kept; default: 1h",
    )
    add("--log-format", choices=["text", "json"], default="text")
    add("-v", dest="verbosity", type=int, default=0, metavar="LEVEL", help="0 to 4; default: 0")


def run(arguments: argparse.Namespace) -> int:
    set_up_logging(arguments.log_format, arguments.verbosity)
    if (arguments.tls_cert_file is None) != (arguments.tls_private_key_file is None):
        print("restow serve: give both --tls-cert-file and --tls-private-key-file", file=sys.stderr)
        return 2
    options = ServeOptions(
        data_dir=arguments.data_dir,
        store=arguments.store,
        bind=arguments.bind,
        port=arguments.port,
        release=arguments.release,
        tls_cert_file=arguments.tls_cert_file,
        tls_private_key_file=arguments.tls_private_key_file,
        client_ca_file=arguments.client_ca_file,
        token_auth_file=arguments.token_auth_file,
        service_account_signing_key_file=arguments.service_account_signing_key_file,
        compaction_interval_seconds=arguments.compaction_interval,
        event_ttl_seconds=arguments.event_ttl,
    )
    from restow.apiserver.refusals import REFUSALS
    from restow.apiserver.serve import serve

    try:
        uvloop.run(serve(options))
    except REFUSALS as error:
        hint = ""
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            hint = " (another server runs there; choose a free one with --port 0)"
        print(f"restow serve: {error}{hint}", file=sys.stderr)
        return EXIT_REFUSED
    return 0


def set_up_logging(log_format: str, verbosity: int) -> None:
    """Logs go to standard error, for people or as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(name)s: %(message)s"))
    level = logging.DEBUG if verbosity >= 4 else logging.INFO
    logging.basicConfig(level=level, handlers=[handler], force=True)


class _JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "ts": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text[:6]) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def _seconds(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600}
    unit = units.get(text[-1:], 0)
    try:
        seconds = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time, such as 300, 5m or 1h")
    return seconds
