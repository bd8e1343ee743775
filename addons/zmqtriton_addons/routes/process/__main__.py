"""The process of routes: `python -m zmqtriton_addons.routes.process --lifeline FD --socket FD`."""

from __future__ import annotations

from zmqtriton_addons.routes.process.service import RoutesService
from zmqtriton_floor import prctl
from zmqtriton_frontends.serving import run


def main() -> int:
    return run(
        "zmqtriton-routes",
        ["socket"],
        lambda gateway, bound: RoutesService(gateway, bound["socket"]),
        is_small=True,
    )


if __name__ == "__main__":
    prctl.run_program(main)
