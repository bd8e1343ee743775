"""The process of the door: `python -m zmqtriton_extras.door.process --lifeline FD --socket FD`.

Started by the supervisor, which has bound the socket, and tells it over the lifeline who it is,
when to listen and when to stop. Ends with status 0 once it was told to stop; the end of the
lifeline ends it at once.
"""

from __future__ import annotations

from zmqtriton_extras.door.process.server import DoorServer
from zmqtriton_floor import prctl
from zmqtriton_frontends.serving import run


def main() -> int:
    return run(
        "zmqtriton-door", ["socket"], lambda gateway, bound: DoorServer(gateway, bound["socket"])
    )


if __name__ == "__main__":
    prctl.run_program(main)
