"""Variables of the server's environment that models do not get.

If a model reads one of them, the error says so: the variable below has their names.
"""

from __future__ import annotations

import json
import os
import traceback

#: JSON: the names, each with the `--model-env` that passes it.
VARIABLE = "ZMQTRITON_WITHHELD"


def hint(error: BaseException) -> str:
    """Return a hint for the text of an exception; "" if no withheld variable has caused it."""
    if not isinstance(error, KeyError) or VARIABLE not in os.environ:
        return ""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    # any other dictionary may have such a key, too
    if not frames or frames[-1].f_globals is not vars(os):
        return ""
    option = json.loads(os.environ[VARIABLE]).get(error.args[0])
    if option is None:
        return ""
    return f" (the server withholds this variable from models: --model-env={option} passes it)"
