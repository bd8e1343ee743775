"""A copy of the repository, and commands that see it, or a mutant of it, instead of the original.

They have processes, /tmp and /dev/shm of their own: a mutant can affect nothing outside, and all
that it has made is gone when its trial is over.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tools.mutants.mutations import Mutation
from tools.mutants.rooms import ROOT

_COPIED = ("extras", "frontends", "standard", "stub", "tests", "zmqtriton")
#: Kilobytes of address space for each process.
_MAX_MEMORY = 12_000_000
_BEGIN = """
tree=$1 root=$2 mutant=$3 module=$4; shift 4
for folder in {folders}; do mount --bind "$tree/$folder" "$root/$folder" || exit 99; done
if [ -n "$module" ]; then mount --bind "$mutant" "$root/$module" || exit 99; fi
mount -t tmpfs tmpfs /tmp && mount -t tmpfs -o mode=1777 tmpfs /dev/shm || exit 99
chmod 1777 /tmp
ulimit -v {memory}
"$@"
""".format(folders=" ".join(_COPIED), memory=_MAX_MEMORY)
#: What runs here ends with us, however we end.
_DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
_AS_ROOT = () if os.geteuid() == 0 else ("--user", "--map-root-user")


#: Seconds before now, where no file is from.
_LONG_AGO_S = 1_000_000_000


class NoSandbox(Exception):
    pass


class Sandbox:
    """Runs commands; each sees the repository as it was when the sandbox was made.

    With `keeps_first`: as it was when the first sandbox was made in this folder.
    """

    def __init__(self, folder: Path, *, keeps_first: bool = False) -> None:
        first = [path.parent.name for path in folder.glob("*/tree") if keeps_first]
        self.folder = folder / (first[0] if first else _hash())
        self.tree = self.folder / "tree"
        self._moments = itertools.count(int(time.time()) - _LONG_AGO_S)
        if not self.tree.exists():
            draft = self.folder / f"tree.{os.getpid()}"
            for name in _COPIED:
                shutil.copytree(ROOT / name, draft / name, symlinks=True)
            draft.rename(self.tree)

    def run(
        self,
        command: list[str],
        environment: Mapping[str, str],
        within_s: float,
        mutation: Mutation | None = None,
        place: Path | None = None,
    ) -> int | None:
        """Run a command; return the exit status, or None after `within_s` seconds.

        Without a mutation, the command sees the code as it is.
        """
        module = ""
        if mutation is not None and place is not None:
            module = mutation.path
            original = (self.tree / module).read_bytes()
            place.write_bytes(mutation.apply(original))
            # what is compiled from it is valid for no other mutant, nor for the original
            moment = next(self._moments)
            os.utime(place, (moment, moment))
        shell = ("sh", "-c", _BEGIN, "sh", str(self.tree), str(ROOT), str(place), module)
        process = subprocess.Popen(
            [*_DIE_WITH_US, *_UNSHARE, *_AS_ROOT, *shell, *command],
            cwd=ROOT,
            # the next trial finds compiled what this one has imported
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if module else None,
            stderr=subprocess.STDOUT if module else None,
        )
        try:
            status = process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()
            process.wait()
        if status == 99:
            raise NoSandbox("it needs root, or user namespaces that may mount")
        return status

    def pytest(self, *arguments: str) -> list[str]:
        plugins = ("-p", "tools.mutants.recording", "-p", "no:cacheprovider")
        return [sys.executable, "-m", "pytest", "-q", "--tb=no", *plugins, *arguments]


def _hash() -> str:
    digest = hashlib.sha256()
    for name in _COPIED:
        for path in sorted((ROOT / name).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
