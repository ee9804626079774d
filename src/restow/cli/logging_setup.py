"""Logging of long-running commands: to standard error, as text or JSON.

Not here: the messages.
"""

from __future__ import annotations

import json
import logging
import sys


def set_up_logging(log_format: str, verbosity: int) -> None:
    """Log to standard error, as text or as one JSON object per line."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(name)s: %(message)s"))
    level = logging.DEBUG if verbosity >= 4 else logging.INFO
    logging.basicConfig(level=level, handlers=[handler], force=True)


class _JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object per line."""

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
