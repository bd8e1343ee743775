"""The server that a test of `zmqtriton-ctl` plays."""

from __future__ import annotations

from tests.ctl.conftest import server, several, temporary, utc

__all__ = ["server", "several", "temporary", "utc"]
