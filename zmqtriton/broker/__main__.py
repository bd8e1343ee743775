"""Entry point: `python -m zmqtriton.broker --lifeline FD --begun FD`, started by the supervisor."""

from __future__ import annotations

import argparse
import signal

from zmqtriton.broker.service import BrokerService
from zmqtriton_floor import prctl
from zmqtriton_floor.lifeline import Lifeline


def main() -> int:
    parser = argparse.ArgumentParser(prog="zmqtriton.broker")
    parser.add_argument("--lifeline", type=int, required=True)
    parser.add_argument("--begun", type=int, required=True)
    arguments = parser.parse_args()
    prctl.set_name("zmqtriton-broker")
    prctl.hide_memory()
    prctl.wake_in_time()  # delays of batches are short
    # The broker ends when the supervisor says so or dies, never by a signal to the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return BrokerService(Lifeline.inherited(arguments.lifeline), arguments.begun).run()


if __name__ == "__main__":
    prctl.run_program(main)
