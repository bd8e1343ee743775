"""The process of jobs: `python -m zmqtriton_extras.jobs.process --lifeline FD --socket FD`."""

from __future__ import annotations

from zmqtriton.sdk.process import prctl, run
from zmqtriton_extras.jobs.batches.process import ROOM as BATCHES
from zmqtriton_extras.jobs.process.service import JobsService


def main() -> int:
    return run(
        "zmqtriton-jobs",
        ["socket"],
        lambda gateway, bound: JobsService(gateway, bound["socket"], [BATCHES]),
    )


if __name__ == "__main__":
    prctl.run_program(main)
