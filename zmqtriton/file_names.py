"""Names of files, and obstacles to a write.

Names of models' files are UTF-8 to clients, whatever the locale's encoding is.

Python decodes names of files by the locale, once for a whole process. In one of another encoding, a
model of a UTF-8 name would be served under a garbled one.
"""

from __future__ import annotations

import os
import sys

#: Variable of Python for its UTF-8 mode. Children get it, too: paths are passed to them as text.
_VARIABLE = "PYTHONUTF8"


def write_obstacle(name: str) -> str:
    """Return why a file with this name cannot be written or made; "" if it can. Changes nothing."""
    place = name if os.path.exists(name) else os.path.dirname(os.path.abspath(name))
    if not os.path.exists(place):
        return f"there is no directory '{place}'"
    if os.path.isdir(name):
        return f"'{place}' is a directory"
    return "" if os.access(place, os.W_OK) else f"'{place}' cannot be written"


def is_utf8() -> bool:
    """Return whether this process decodes names of files as UTF-8."""
    return sys.getfilesystemencoding().replace("-", "").lower() == "utf8"


def read_as_utf8() -> None:
    """Restart the program in Python's UTF-8 mode, if the locale has another encoding.

    Does nothing if the user has set that mode.
    """
    if is_utf8() or _VARIABLE in os.environ or not sys.executable:
        return
    os.environ[_VARIABLE] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
