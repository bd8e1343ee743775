"""The programs of this folder under the Python of `make test KIND=peers`, against any server.

    python -m tests.peers.peers HTTP_PORT GRPC_PORT FILE

writes to FILE what tritonclient's and PyTriton's calls come to at a server that runs: real Triton,
say, whose results are in recorded/.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
#: What the calls ask for.
MODELS = ("add_sub", "counting", "string_upper")


def forms(program: str, *words: str) -> Any:
    """Return what a program prints."""
    finished = subprocess.run(
        [str(PYTHON), str(FOLDER / program), *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def ask(http: str, grpc: str) -> dict[str, Any]:
    """Return the forms of the calls of tritonclient and PyTriton, for these addresses."""
    return {
        "tritonclient": forms("triton_calls.py", http, grpc),
        "pytriton": forms("pytriton_calls.py", f"http://{http}", f"grpc://{grpc}"),
    }


def write(found: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write(ask(*(f"127.0.0.1:{port}" for port in sys.argv[1:3])), Path(sys.argv[3]))
