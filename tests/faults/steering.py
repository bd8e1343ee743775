"""Models that are steered under a steady load."""

from __future__ import annotations

import random
import time
from typing import Any

from tests.faults.stamps import MODEL, SteadyLoad, control_model, model_file, write_stamp
from tests.support.server import Server

PER_SECOND = 200
MAX_INSTANCES = 6


def steer(server: Server, what: str, change: dict[str, Any], model: str = MODEL) -> Any:
    """Ask for a change over HTTP, and wait for it."""
    status, answer = server.request_json(f"/v2/models/{model}/{what}", change)
    assert status == 200, answer
    return answer


def scale_often(server: Server, times: int, pause_s: float = 0.0) -> SteadyLoad:
    """Give the model another number of instances, so often, under the load that is returned."""
    chosen, count = random.Random(1), 1
    with SteadyLoad(server.http_port, per_second=PER_SECOND) as asking:
        for _ in range(times):
            count = chosen.choice([n for n in range(1, MAX_INSTANCES + 1) if n != count])
            counts = steer(server, "scale", {"count": count})["versions"]["1"]
            assert (count, count) == (counts["instances"], counts["ready"]), counts
            time.sleep(pause_s)
    return asking


_BROKEN_CODE = (
    "raise ImportError('broken at import')\n",
    "class TritonPythonModel:\n"
    "    def initialize(self, args):\n"
    "        raise ValueError('broken at initialize')\n"
    "    def execute(self, requests): return []\n",
)


def roll_often(
    server: Server, times: int, *, broken_times: int, pause_s: float = 0.0
) -> SteadyLoad:
    """Load other code, so often, under the load that is returned; some is broken and refused."""
    steer(server, "scale", {"count": 3})
    code = model_file(server)
    broken_turns = random.Random(1).sample(range(times), broken_times)
    with SteadyLoad(server.http_port, per_second=PER_SECOND) as asking:
        for turn in range(times):
            sound = code.read_text()
            is_broken = turn in broken_turns
            if is_broken:
                code.write_text(_BROKEN_CODE[turn % len(_BROKEN_CODE)])
            else:
                write_stamp(server, turn + 1)
            status, reason = control_model(server, "load")
            assert (status != 200, "broken at" in reason) == (is_broken, is_broken), reason
            if is_broken:
                code.write_text(sound)
            time.sleep(pause_s)
    return asking
