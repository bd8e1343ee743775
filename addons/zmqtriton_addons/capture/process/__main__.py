"""The process of captures: `python -m zmqtriton_addons.capture.process`, run by the server."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from zmqtriton_addons.capture.process.service import CaptureService
from zmqtriton_floor import prctl
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.serving import run_local


def main() -> int:
    return run_local("zmqtriton-capture", _service)


def _service(gateway: Gateway, listener: socket.socket) -> CaptureService:
    # no request waits for a processor on which captures are written
    with suppress(OSError):  # where a sandbox forbids it
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return CaptureService(gateway, listener)


if __name__ == "__main__":
    prctl.run_program(main)
