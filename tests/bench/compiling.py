"""Copies the server into a folder, with the broker and its transport compiled by mypyc.

    PYTHON -m tests.bench.compiling FOLDER

PYTHON has the version for which it is compiled, mypy, and the server's packages; needs gcc. The
folder goes before others in PYTHONPATH. D84 says why the server itself is not compiled; in the way
are three places, which are changed in the copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_PACKAGES = {
    "zmqtriton": "zmqtriton",
    "zmqtriton_floor": "stub/zmqtriton_floor",
    "zmqtriton_stub": "stub/zmqtriton_stub",
}
#: File, what mypyc makes wrong code of or none, and the same in other words.
_CHANGES = [
    (
        "zmqtriton/broker/service.py",
        "WeakKeyDictionary[object, tuple[wire.Hello, list[bytes]]] = WeakKeyDictionary()",
        "dict[object, tuple[wire.Hello, list[bytes]]] = {}",
    ),
    (
        "zmqtriton/broker/sequences/batcher.py",
        "while has_places and len(rows) < sequence.position:",
        "while len(rows) < (sequence.position if has_places else 0):",
    ),
    ("zmqtriton/broker/scheduling/fitting.py", "\n    levels: _MeasuredLevels\n", ""),
    (
        "zmqtriton/broker/scheduling/fitting.py",
        "self.levels.arrived.",
        "_own(self.levels).arrived.",
    ),
    (
        "zmqtriton/broker/scheduling/fitting.py",
        "self.levels.take_arrived(",
        "_own(self.levels).take_arrived(",
    ),
    (
        "zmqtriton/broker/scheduling/fitting.py",
        "class FittingQueue(",
        "def _own(levels: Any) -> Any:\n    return levels\n\n\nclass FittingQueue(",
    ),
]
_MYPY = """[mypy]
explicit_package_bases = True
ignore_missing_imports = True
follow_imports = silent
disable_error_code = unused-ignore
warn_unused_ignores = False
"""
_SETUP = """
from pathlib import Path
from mypyc.build import mypycify
from setuptools import setup

files = [str(path) for path in Path("zmqtriton/broker").rglob("*.py") if path.stem != "__main__"]
words = ["--config-file", "mypy.ini", *sorted(files), "zmqtriton_floor/zmtp.py"]
how = {"opt_level": "2", "debug_level": "0", "multi_file": True, "group_name": "zmqtriton"}
setup(name="compiled", packages=[], ext_modules=mypycify(words, **how))
"""


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    for name, source in _PACKAGES.items():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / source, folder / name, ignore=ignored)
    for file, before, after in _CHANGES:
        text = (folder / file).read_text("utf-8")
        assert before in text, (file, before)
        (folder / file).write_text(text.replace(before, after), "utf-8")
    (folder / "mypy.ini").write_text(_MYPY)
    (folder / "setup.py").write_text(_SETUP)
    roots = [ROOT / name for name in ("frontends", "standard", "extras")]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, (".", *roots)))}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    shutil.rmtree(folder / "build")
    libraries = [*folder.rglob("*.so")]
    subprocess.run(["strip", *libraries], check=True)
    print(f"{sum(path.stat().st_size for path in libraries) / 1e6:.1f} MB of libraries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
