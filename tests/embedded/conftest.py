"""The fixtures of tests with real processes."""

from __future__ import annotations

from tests.system.conftest import running, server, shared_server, tmp_path

__all__ = ["running", "server", "shared_server", "tmp_path"]
