"""Threads of this process that cannot begin."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from unittest import mock


def no_thread_begins() -> AbstractContextManager[object]:
    """Refuse threads as under pids.max."""
    error = RuntimeError("can't start new thread")
    return mock.patch.object(threading.Thread, "start", side_effect=error)
