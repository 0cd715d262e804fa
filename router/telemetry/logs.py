"""Log lines: for people, or one JSON object each. What a line says of a request are fields, never words of a client's."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

from router.config.telemetry import LoggingConfig


def say(log: logging.Logger, level: int, event: str, *, trace: bool = False, **fields: object) -> None:
    """Write one line: an event's name and its fields; with `trace` the exception that is being handled, below it."""
    if log.isEnabledFor(level):
        told = " ".join(f"{name}={value}" for name, value in fields.items())
        log.log(level, "%s: %s", event, told, exc_info=trace or None, extra={"event": event, "fields": fields})


class JsonFormatter(logging.Formatter):
    """One object a line: time (UTC, ISO 8601), level, logger, event or message, and the line's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            told["event"] = getattr(record, "event", "")
            told.update(fields)
        else:
            told["message"] = record.getMessage()
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(told, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure(config: LoggingConfig) -> None:
    """Send this process's log lines to standard error as configured."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if config.format == "json" else text)
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
    # uvicorn repeats per connection what the proxy has said once per request.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)


__all__ = ["JsonFormatter", "configure", "say"]
