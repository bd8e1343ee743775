"""The server of these tests is a real one."""

from __future__ import annotations

from tests.system.conftest import server

__all__ = ["server"]
