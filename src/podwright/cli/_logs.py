"""Log lines that programs read: one JSON object each."""

from __future__ import annotations

import json
import logging


class JsonLines(logging.Formatter):
    """time (seconds since 1970), level, logger, message, and where there is one, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = {
            "time": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
