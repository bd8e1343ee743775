"""The process that prepares the environment of a model; started by the supervisor.

Says what it does over its lifeline, then one Answer: the Environment, or what is wrong. It dies
with the supervisor, and is killed where nobody wants the environment any more.
"""

from __future__ import annotations

import json
import os
import sys

from zmqtriton.environments.cache import Cache
from zmqtriton.environments.demand import Demand
from zmqtriton.environments.prepare import prepare
from zmqtriton_floor import prctl, wire
from zmqtriton_floor.errors import InternalError, ZmqTritonError
from zmqtriton_floor.lifeline import Lifeline


def main(arguments: list[str]) -> int:
    if len(arguments) != 4 or arguments[0] != "--lifeline":
        sys.stderr.write("usage: -m zmqtriton.environments --lifeline FD CACHE DEMAND\n")
        return 2
    prctl.set_name("environments")
    # The server's own habit, not the model's.
    os.environ.pop("PYTHONSAFEPATH", None)
    line = Lifeline.inherited(int(arguments[1]))
    demand = Demand(*json.loads(arguments[3]))

    def report(level: str, text: str) -> None:
        line.send(wire.Said(level, "environments", 0, text[:4096]))

    try:
        found = prepare(demand, Cache(arguments[2]), report)
        answer = wire.Answer(0, 0, "", json.dumps(found))
    except ZmqTritonError as error:
        answer = wire.Answer(0, error.number, error.text, "")
    except OSError as error:
        failure = InternalError(f"{demand} cannot be prepared: {error}")
        answer = wire.Answer(0, failure.number, failure.text, "")
    line.send(answer)
    while line.is_backed_up and not line.ended:
        line.wait(1.0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
