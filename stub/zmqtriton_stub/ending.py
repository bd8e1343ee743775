"""The end of a stub that the fork server has forked.

Python would take every module apart, and so copy all the memory that stubs share: most of the work
of a server that stops, and most of the machine's memory. Here only objects made after the fork are
taken apart. Everything else that a program does at its end is done in order: exit functions of
Python, the streams, exit functions of C.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import threading
from contextlib import suppress
from itertools import takewhile
from types import ModuleType
from typing import Any, Container, Dict, List

# Holds the interpreter's lock in its calls: Python has ended for all but this thread.
_PYTHON = ctypes.PyDLL(None)
#: The threads of an instance itself, that of signals among them: the end takes nothing from these.
own_threads = 1
#: The names of modules that were imported before the fork, and that the end leaves as they are.
kept: Container[str] = ()


def end(shared: Container[str]) -> None:
    """End the process with status 0; return if Python itself has to end it.

    `shared` are the names of modules from before the fork. If other threads run, they may need what
    is taken apart here, so Python itself must end the process.
    """
    if _has_threads():
        return
    threading._shutdown()  # type: ignore[attr-defined] # as Python does, before exit functions
    atexit._run_exitfuncs()
    if _has_threads():
        return
    for module in _modules_since(shared):
        _clear(vars(module))
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # as Python does
            stream.flush()
    _PYTHON.exit(0)


def _has_threads() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) > own_threads
    except OSError:  # nobody can say
        return True


def _modules_since(shared: Container[str]) -> List[ModuleType]:
    """Return the modules imported since the fork, the last first: later ones use earlier ones."""
    # a look at more of them would copy their memory
    names = takewhile(lambda name: name not in shared, reversed(sys.modules))
    own = map(sys.modules.get, [name for name in names if name not in kept])
    return [module for module in own if isinstance(module, ModuleType)]


def _clear(names: Dict[str, Any]) -> None:
    """Drop a module's objects, the last first: a destructor may need earlier ones."""
    for name in list(reversed(names)):
        if name != "__builtins__":
            names[name] = None
