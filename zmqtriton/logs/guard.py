"""Keeps an error where it happened: the supervisor must not die of one child or one request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)


@contextmanager
def guarded(
    what: str, on_error: Callable[[Exception], object] = lambda error: None
) -> Iterator[None]:
    """Log an error of the block and call `on_error`, which ends what the block was for.

    An OSError is the machine's, and a line says enough; anything else is a defect.
    """
    try:
        yield
    except OSError as error:
        _log.error("%s has failed: %s", what, error)
        on_error(error)
    except Exception as error:  # noqa: BLE001 - the edge: whatever it is must go no further
        _log.exception("%s has failed", what)
        on_error(error)
