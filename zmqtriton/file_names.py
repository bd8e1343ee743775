"""Names of files: those of models are UTF-8 to clients, whatever the locale's encoding is.

Python decodes names of files by the locale, once for a whole process. In one of another encoding, a
model of a UTF-8 name would be served under a garbled one.
"""

from __future__ import annotations

import os
import sys

#: Variable of Python for its UTF-8 mode. Children get it, too: paths are passed to them as text.
_VARIABLE = "PYTHONUTF8"


def is_utf8() -> bool:
    """Return whether this process decodes names of files as UTF-8."""
    return sys.getfilesystemencoding().replace("-", "").lower() == "utf8"


def read_as_utf8() -> None:
    """Restart the program in Python's UTF-8 mode, if the locale has another encoding.

    Not if the user has decided about that mode.
    """
    if is_utf8() or _VARIABLE in os.environ or not sys.executable:
        return
    os.environ[_VARIABLE] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
