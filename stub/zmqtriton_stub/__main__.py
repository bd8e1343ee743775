"""The entry point of a stub, started by path by the model's own interpreter.

`python …/__main__.py --lifeline FD --progress FD --listener FD m m_0_0` is a stub, `--fork-server
FD` the fork server, `--spare FD` the spare process of an environment, `--template FD m` the process
that the instances of a model are forked from, `--threads FD m` all instances of a model. Loads the
floor and the stub from their directories, so that neither this directory nor the server's
site-packages come onto the model's path. The loading is outside the guard, since children that a
model makes with multiprocessing's spawn also run this file, under another name.

Exit status: 0 finished, 1 the model failed to load or the supervisor is gone, 2 wrong arguments, 3
the environment lacks a module; a status that a background coroutine passes to sys.exit() is passed
on.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zmqtriton_stub import template


def _load_packages() -> None:
    here = os.path.dirname(os.path.realpath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == here:  # not so under -I
        del sys.path[0]
    for name in ("zmqtriton_floor", "zmqtriton_stub"):
        home = os.path.join(os.path.dirname(here), name)
        spec = importlib.util.spec_from_file_location(
            name, os.path.join(home, "__init__.py"), submodule_search_locations=[home]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"no package in {home}")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    model_path = os.path.join(here, "model_path")
    if model_path not in sys.path:
        sys.path.append(model_path)
    from zmqtriton_stub import model_code

    model_code.follow()


if not __package__:
    _load_packages()


#: Processes that fork instances of any model, and those that load a model for all of its instances.
_FORKING = (["--fork-server"], ["--spare"])
_LOADED_ONCE = (["--template"], ["--threads"])


def main() -> int:
    arguments = sys.argv[1:]
    shared = of_template = None
    at = 6 if arguments[:1] == ["--lifeline"] else 2
    if arguments[at : at + 1] == ["--support"]:
        # after everything that the environment has, and before what lies beside the model
        sys.path.append(arguments[at + 1])
        del arguments[at : at + 2]
    if arguments[:1] in _FORKING:
        forked = _fork(arguments)
        if forked is None:
            return 0
        arguments, shared = forked
    if arguments[:1] in _LOADED_ONCE:
        born_of = _load_once(arguments)
        if isinstance(born_of, int):
            return born_of
        arguments, shared, of_template = born_of
    if len(arguments) != 8 or arguments[0:6:2] != ["--lifeline", "--progress", "--listener"]:
        sys.stderr.write(
            "usage: __main__.py --lifeline FD --progress FD --listener FD [--support DIR] "
            "MODEL INSTANCE\n"
        )
        return 2
    lifeline, progress, listener = map(int, arguments[1:6:2])
    model, name = arguments[6:]
    try:
        from zmqtriton_stub import process
    except ImportError as error:
        return _lacks_module(error, model)
    status = process.run(lifeline, progress, listener, name, of_template)
    if shared is not None and status == 0:
        from zmqtriton_stub import ending

        ending.end(shared)
    return status


def _fork(arguments: list[str]) -> tuple[list[str], frozenset[str]] | None:
    """Return a new stub's arguments, and the modules that it shares; None in the original."""
    from zmqtriton_stub import fork_server

    if arguments[0] == "--spare":
        from zmqtriton_stub import spare

        return spare.run(int(arguments[1]))
    born = fork_server.run(int(arguments[1]))
    return None if born is None else (born, fork_server.SHARED_MODULES)


def _load_once(arguments: list[str]) -> int | template.Born:
    """Return the parts of a new stub; in the template itself, the exit status at its end."""
    try:
        from zmqtriton_stub import template, threads
    except ImportError as error:
        return _lacks_module(error, arguments[2])
    if arguments[0] == "--threads":
        return threads.run(int(arguments[1]), arguments[2])
    return template.run(int(arguments[1])) or 0


def _lacks_module(error: ImportError, model: str) -> int:
    """Name the module to install, and return the exit status; raise any other error."""
    if error.name not in ("zmq", "msgpack", "numpy"):
        raise error
    sys.stderr.write(
        f"The Python environment of model '{model}' lacks the module '{error.name}': {error}. "
        f"Install it with: {sys.executable} -m pip install pyzmq msgpack numpy\n"
    )
    return 3


if __name__ == "__main__":
    sys.exit(main())
