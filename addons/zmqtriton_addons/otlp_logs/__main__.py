"""The process that pushes the log: `python -m zmqtriton_addons.otlp_logs`."""

from __future__ import annotations

from zmqtriton_addons.otlp_logs.service import LogsPusher
from zmqtriton_floor import prctl
from zmqtriton_frontends.serving import run


def main() -> int:
    return run(
        "zmqtriton-logs",
        ["socket"],
        lambda gateway, bound: LogsPusher(gateway, bound["socket"]),
        is_small=True,
    )


if __name__ == "__main__":
    prctl.run_program(main)
