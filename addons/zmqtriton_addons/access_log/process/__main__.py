"""The process of the access log: `python -m zmqtriton_addons.access_log.process`."""

from __future__ import annotations

from zmqtriton_addons.access_log.process.service import AccessLogService
from zmqtriton_floor import prctl
from zmqtriton_frontends.serving import run


def main() -> int:
    return run(
        "zmqtriton-access-log",
        ["socket"],
        lambda gateway, bound: AccessLogService(gateway, bound["socket"]),
        is_small=True,
    )


if __name__ == "__main__":
    prctl.run_program(main)
