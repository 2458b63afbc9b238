"""Takes credentials out of what is shown of messages and errors: log lines, AutoGen's events, spans. See `masking`.

Costs nothing but where something is written, since it begins where a record was let through.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, cast

from autogen_core import EVENT_LOGGER_NAME
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import Attributes
from pydantic import JsonValue

from stagebell.messages.masking import mask, mask_text

_LOGGERS: Final = ("stagebell", "autogen_core", EVENT_LOGGER_NAME)


class HideCredentials(logging.Filter):
    """Lets every record pass, with its text, its traceback and its event's fields masked."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true."""
        event: Any = record.msg
        fields = getattr(event, "kwargs", None)  # of an event of AutoGen's
        if isinstance(fields, dict):
            event.kwargs = mask(cast("dict[str, JsonValue]", fields))
            return True
        text = record.getMessage()
        hidden = mask_text(text)
        if hidden != text:
            record.msg, record.args = hidden, None
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            told = _told(record.exc_info[1])
            hidden = mask_text(told)
            if hidden != told:
                record.exc_text, record.exc_info = hidden, None  # or some would write it anew
        return True


def hide_credentials() -> None:
    """Let the loggers of the runtime hide credentials; once is enough."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, HideCredentials) for each in logger.filters):
            logger.addFilter(HideCredentials())


@contextmanager
def masked_span(tracer: Tracer, name: str, kind: SpanKind, attributes: Attributes) -> Generator[Span, None, None]:
    """A span around what is done in the block; what that raises is noted on it with credentials hidden, and goes on."""
    with tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except Exception as error:
            record_error(span, error)
            raise


def record_error(span: Span, error: BaseException, *, failed: bool = True) -> None:
    """Note on a span that something raised.

    Args:
        span: where.
        error: what was raised.
        failed: it is what the span has come to.
    """
    text = mask_text(str(error))
    told: dict[str, Any] = {"exception.message": text, "exception.stacktrace": mask_text(_told(error))}
    span.record_exception(error, told)
    if failed:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {text}"))


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip("\n")
