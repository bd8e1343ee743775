"""The process of jobs: `python -m zmqtriton_extras.jobs.process --lifeline FD --socket FD`."""

from __future__ import annotations

from zmqtriton_extras.jobs.batches.process import ROOM as BATCHES
from zmqtriton_extras.jobs.process.service import JobsService
from zmqtriton_floor import prctl
from zmqtriton_frontends.serving import run


def main() -> int:
    return run(
        "zmqtriton-jobs",
        ["socket"],
        lambda gateway, bound: JobsService(gateway, bound["socket"], [BATCHES]),
    )


if __name__ == "__main__":
    prctl.run_program(main)
