"""The fixtures of tests with real processes, for those of add-ons."""

from __future__ import annotations

from tests.system.conftest import lone_shared_server, running, server, shared_server, tmp_path

__all__ = ["lone_shared_server", "running", "server", "shared_server", "tmp_path"]
