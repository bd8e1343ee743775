"""The fixtures of tests with real processes, for tests of extras."""

from __future__ import annotations

from tests.system.conftest import pool, running, server, shared_server, tmp_path

__all__ = ["pool", "running", "server", "shared_server", "tmp_path"]
