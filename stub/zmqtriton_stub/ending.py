"""The end of a stub that the fork server has forked.

Python would take every module apart, and so copy all the memory that stubs have in common: most of
the work of a server that stops, and most of the memory of the machine meanwhile. Here only what has
come after the fork is taken apart. What else a program does at its end is done in its order: exit
functions of Python, the streams, exit functions of C.
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


def end(shared: Container[str]) -> None:
    """End the process with status 0; return if Python itself has to end it.

    `shared` are the names of the modules that were there before the fork. A thread, of Python or
    not, may need what the rest of the end takes from it, and Python knows how to hold it up.
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
    """Return the modules that were imported since, the last first: it has imported the others."""
    # a look at more of them would copy their memory
    names = takewhile(lambda name: name not in shared, reversed(sys.modules))
    return [module for module in map(sys.modules.get, names) if isinstance(module, ModuleType)]


def _clear(names: Dict[str, Any]) -> None:
    """Let go of a module's objects, the last first: a destructor may need the ones before."""
    for name in list(reversed(names)):
        if name != "__builtins__":
            names[name] = None
