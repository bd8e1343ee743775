"""The process that adds up tokens: `python -m zmqtriton_addons.token_metrics`."""

from __future__ import annotations

from zmqtriton_addons.token_metrics.service import TokenMetrics
from zmqtriton_floor import prctl
from zmqtriton_frontends.serving import run


def main() -> int:
    return run(
        "zmqtriton-tokens",
        ["socket"],
        lambda gateway, bound: TokenMetrics(bound["socket"]),
        is_small=True,
    )


if __name__ == "__main__":
    prctl.run_program(main)
