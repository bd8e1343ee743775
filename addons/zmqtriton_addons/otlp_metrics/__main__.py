"""The process that pushes metrics: `python -m zmqtriton_addons.otlp_metrics`."""

from __future__ import annotations

from zmqtriton_addons.otlp_metrics.service import MetricsPusher
from zmqtriton_floor import prctl
from zmqtriton_frontends.serving import run


def main() -> int:
    return run(
        "zmqtriton-otlp",
        ["socket"],
        lambda gateway, bound: MetricsPusher(gateway, bound["socket"]),
        is_small=True,
    )


if __name__ == "__main__":
    prctl.run_program(main)
