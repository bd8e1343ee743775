"""Prints facts about an interpreter, and the modules that stubs need and it lacks, as JSON.

Run by path, by any Python that a model names, with the variables that its instances will have; so
it must start even on Pythons that are too old for everything else here. Imports nothing of ours.
"""

import errno
import json
import os
import sys

#: The prefix of its output: models' own startup files may print, too.
MARK = "zmqtriton-probe "
NEEDED = ("zmq", "msgpack", "numpy")


def describe():
    # type: () -> "dict[str, object]"
    import platform
    import sysconfig

    implementation = platform.python_implementation().lower()
    return {
        "version": list(sys.version_info[:3]),
        "implementation": implementation,
        "abi": sysconfig.get_config_var("SOABI") or implementation,
        "platform": sysconfig.get_platform(),
        "executable": os.path.realpath(sys.executable),
        "lacks": [name for name in NEEDED if not _has(name)],
        "closed": [path for path in _package_directories(sysconfig) if _is_closed(path)],
    }


def _package_directories(sysconfig):
    # type: (object) -> "list[str]"
    paths = sysconfig.get_paths()  # type: ignore[attr-defined]
    return sorted({paths["purelib"], paths["platlib"]})


def _is_closed(path):
    # type: (str) -> bool
    """Return True if this user may not list a directory, which Python ignores silently."""
    try:
        os.listdir(path)
    except OSError as error:
        return error.errno == errno.EACCES
    return False


def _has(name):
    # type: (str) -> bool
    try:
        from importlib.util import find_spec
    except ImportError:  # a Python that is too old anyway
        return False
    return find_spec(name) is not None


def main():
    # type: () -> None
    here = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) != here]
    sys.stdout.write("\n" + MARK + json.dumps(describe()) + "\n")


if __name__ == "__main__":
    main()
