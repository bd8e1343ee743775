"""The process of captures: `python -m zmqtriton_addons.capture.process`, run by the server."""

from __future__ import annotations

from zmqtriton_addons.capture.process.service import CaptureService
from zmqtriton_floor import prctl
from zmqtriton_frontends.serving import run


def main() -> int:
    return run(
        "zmqtriton-capture",
        ["socket"],
        lambda gateway, bound: CaptureService(gateway, bound["socket"]),
        is_small=True,
    )


if __name__ == "__main__":
    prctl.run_program(main)
