"""The access log: a line of JSON for each request, whatever its protocol. Here is its option.

`step.py` makes the lines in each frontend; `process.py` writes them to the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zmqtriton.sdk.process import write_obstacle

#: The name of the service, and of its socket in the runtime directory.
SERVICE = "access_log"
#: Question of the metrics process for the figures, over a connection of its own.
QUESTION = b"?\n"


def problem(options: Mapping[str, Any]) -> str:
    """Return the fault of the option; "" without one."""
    obstacle = write_obstacle(options[SERVICE])
    return obstacle and f"'--access-log={options[SERVICE]}': {obstacle}"
