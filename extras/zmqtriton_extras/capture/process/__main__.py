"""The process of captures: `python -m zmqtriton_extras.capture.process`, run by the server."""

from __future__ import annotations

from zmqtriton.sdk.process import prctl, run_local
from zmqtriton_extras.capture.process.service import CaptureService


def main() -> int:
    return run_local("zmqtriton-capture", CaptureService)


if __name__ == "__main__":
    prctl.run_program(main)
