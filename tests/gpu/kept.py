"""Weights on a GPU while their model sleeps, wakes up, gets other code, dies and is unloaded.

    python -m tests.gpu.kept [--memory files]

Prints a line for each step, and ends with 1 if one was not as it should be.
"""

from __future__ import annotations

import os
import signal
import sys

from tritonclient.utils import InferenceServerException

from tests.gpu import MIB, SLACK, serving, used_bytes
from tests.standard.ctl.system.commands import ctl
from tests.support import leaks
from tests.support.clients import open_client
from tests.support.tools import parse_options
from tests.support.waiting import eventually

_MODEL, _WEIGHTS = "gpu_weights", 128 * MIB


def main() -> int:
    options = parse_options(__doc__, memory=("cuda", "cuda, or files"))
    leaks.mark_session()
    broken = list[str]()
    explicit = ["--model-control-mode=explicit"]
    with serving(options.memory, [_MODEL], explicit, "") as server:
        client = open_client(server, "grpc")

        def used() -> int:
            return used_bytes(options.memory, server)

        def step(name: str, holds: bool, more: str = "") -> None:
            print(
                f"{'ok' if holds else 'BROKEN':7}{name:44}{used() / MIB:8.0f} MiB {more}",
                flush=True,
            )
            if not holds:
                broken.append(name)

        def becomes(low: float, high: float) -> bool:
            """Return whether so many bytes are in use in the end."""
            try:
                eventually(lambda: low <= used() <= high, 30)
            except AssertionError:
                return False
            return True

        def ask() -> list[int]:
            return client.infer(_MODEL, []).as_numpy("SEEN").tolist()

        before = used()
        assert not server.control_model("load", _MODEL)
        last, address, code = ask()
        loaded = used()
        step("loaded", (3, 1) == (last, code) and loaded >= before + _WEIGHTS)
        put_away = ctl(server, "sleep", _MODEL)
        step("sleeps", becomes(0, loaded - _WEIGHTS + SLACK), put_away.output.strip())
        last, address, code = ask()
        step("a request wakes it up", (3, 1) == (last, code) and becomes(0, loaded + SLACK))
        path = server.repository / _MODEL / "1" / "model.py"
        path.write_text(path.read_text().replace("CODE = 1", "CODE = 2"))
        assert not server.control_model("load", _MODEL)
        step("other code has the same weights", [3, address, 2] == ask(), f"at {address:#x}")
        step("they are there once", becomes(loaded - SLACK, loaded + SLACK))
        [pid] = server.stub_pids(_MODEL)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: server.stub_pids(_MODEL) not in ([], [pid]) and server.is_ready(), 60)
        step("killed, and loaded anew", [3, 2] == ask()[::2] and becomes(0, loaded + SLACK))
        [pid] = server.stub_pids(_MODEL)
        try:
            client.infer(_MODEL, [], parameters={"lose": 1})
            error = ""
        except InferenceServerException as refused:
            error = str(refused.message()).partition("\n")[0]
        eventually(lambda: server.stub_pids(_MODEL) not in ([], [pid]) and server.is_ready(), 60)
        step("an error that lasts, and loaded anew", [3, 2] == ask()[::2], error)
        step("its memory is back", becomes(0, loaded + SLACK))
        assert not server.control_model("unload", _MODEL)
        step("unloaded", becomes(0, before + SLACK))
        client.close()
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
