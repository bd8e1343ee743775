"""The process of the door: `python -m zmqtriton_extras.door.process --lifeline FD --socket FD`.

The supervisor starts it with a bound socket, and sends its Bootstrap and the commands to listen and
to stop over the lifeline. It ends with status 0 after the command to stop, and at once when the
lifeline ends.
"""

from __future__ import annotations

from zmqtriton.sdk.process import prctl, run
from zmqtriton_extras.door.process.server import DoorServer


def main() -> int:
    return run(
        "zmqtriton-door", ["socket"], lambda gateway, bound: DoorServer(gateway, bound["socket"])
    )


if __name__ == "__main__":
    prctl.run_program(main)
