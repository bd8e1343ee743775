"""Processes of the server: `connect` is for those that ask, `Service` for those that answer."""

from __future__ import annotations

from zmqtriton.addons import connect
from zmqtriton_frontends.serving.process import Service, run, run_local

__all__ = ["Service", "connect", "run", "run_local"]
