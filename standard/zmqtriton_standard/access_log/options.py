"""The access log: a line of JSON for each request, whatever its protocol. Here is its option.

`step.py` makes the lines in each frontend; `process.py` writes them to the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: The name of the service, and of its socket in the runtime directory.
SERVICE = "access_log"
#: Question of the metrics process for the figures, over a connection of its own.
QUESTION = b"?\n"


def problem(options: Mapping[str, Any]) -> str:
    """Return the fault of the option; "" without one."""
    path = Path(options[SERVICE]).absolute()
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        return f"'--access-log={options[SERVICE]}': there is no such directory to write to"
    return ""
