"""One attack, as a process of its own, so that it takes no time of the honest clients' process.

python -m tests.faults.attacks.one NAME SEED SECONDS TARGET
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack

from tests.faults.attacks import (
    at_the_door,
    over_grpc,
    over_http,
    over_routes,
    over_sockets,
    strongest,
)
from tests.faults.attacks.target import Attacker, Target

ATTACKS = (
    over_http.ATTACKS
    | over_grpc.ATTACKS
    | over_sockets.ATTACKS
    | over_routes.ATTACKS
    | at_the_door.ATTACKS
)
_ALL: dict[str, Callable[[Attacker], str | None]] = {**ATTACKS, **strongest.ATTACKS}
#: Attackers have machines of their own, and here they have what others leave.
_NICENESS = 10


def main() -> None:
    name, seed, seconds, target = sys.argv[1:]
    os.nice(_NICENESS)
    with ExitStack() as stack:
        attacker = Attacker(Target.read(target), seed, float(seconds), stack)
        outcome = _ALL[name](attacker)
        attacker.wait()
        if outcome:
            print(f"{name}: {outcome}", flush=True)
        # not in order: who is attacked hears that all of it has gone at once
        os._exit(0)


if __name__ == "__main__":
    main()
