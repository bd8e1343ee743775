"""Imports the backends that need no framework as a stub does, and compiles the others.

Run by each old Python, which has nothing of the server, with the paths of `stub/` and `extras/`.
"""

from __future__ import annotations

import json
import os
import sys

#: Backends that need no framework.
_PLAIN = ("dyna_sequence", "identity", "iterative_sequence", "repeat", "sequence", "square")


def check_imports(home: str) -> None:
    from zmqtriton_floor import wire
    from zmqtriton_stub.model import import_class

    for name in _PLAIN:
        path = os.path.join(home, name, "model.py")
        config = json.dumps({"name": "m"})
        load = wire.LoadModel(
            "m_0",
            "m",
            1,
            "CPU",
            0,
            "/repository/m",
            path,
            config,
            0,
            package="zmqtriton_extras.backends." + name,
        )
        assert import_class(load).execute, name
        del sys.modules["model"]  # as in a process of its own


def check_syntax(home: str) -> None:
    for directory, _, files in os.walk(home):
        for file in files:
            if file.endswith(".py"):
                path = os.path.join(directory, file)
                with open(path, encoding="utf-8") as source:
                    compile(source.read(), path, "exec")


if __name__ == "__main__":
    stub, extras = sys.argv[1:]
    sys.path.insert(0, stub)
    backends = os.path.join(extras, "zmqtriton_extras", "backends")
    check_imports(backends)
    check_syntax(backends)
    assert extras not in sys.path
    sys.stdout.write("as expected\n")
