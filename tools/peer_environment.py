"""`python3 tools/peer_environment.py FOLDER PYTHONS WORD …`: an environment of a peer, or why not.

PYTHONS is the range of versions for the peer's packages; the words are arguments of `uv pip
install`. The interpreter is one of this machine. Without a fitting one, FOLDER gets the file
`left_out` with the reason, and tests that need the environment are skipped with that reason. Runs
before anything but uv is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

UV = Path(__file__).resolve().parent.parent / ".venv-uv" / "bin" / "uv"


def make(folder: Path, pythons: str, words: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    find = [UV, "python", "find", "--no-python-downloads", "--system", pythons]
    answer = subprocess.run(find, check=False, capture_output=True, text=True)
    if answer.returncode:
        reason = f"{folder} is left out: there is no Python {pythons} here"
        folder.mkdir(parents=True)
        (folder / "left_out").write_text(f"{reason}\n")
        print(reason, flush=True)
        return
    subprocess.run([UV, "venv", "--quiet", "--python", answer.stdout.strip(), folder], check=True)
    subprocess.run([UV, "pip", "install", "--quiet", "--python", folder, *words], check=True)
    # for make; without it the interpreter is looked for again
    (folder / "stamp").touch()


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
