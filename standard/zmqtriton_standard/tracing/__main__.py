"""Entry point of the tracing process, which the supervisor starts if requests may be traced."""

from __future__ import annotations

import argparse
import os
import signal

from zmqtriton_floor import prctl
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_standard.tracing.service import Service


def main() -> int:
    parser = argparse.ArgumentParser(prog="zmqtriton_standard.tracing")
    parser.add_argument("--lifeline", type=int, required=True)
    arguments = parser.parse_args()
    prctl.set_name("zmqtriton-tracer")
    prctl.hide_memory()
    prctl.die_with(os.getppid())
    # It ends when the supervisor says so or dies, never by a signal to the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return Service(Lifeline.inherited(arguments.lifeline)).run()


if __name__ == "__main__":
    prctl.run_program(main)
