"""Programs that try on a real GPU what is written for one; `python -m tests.gpu` runs them all.

With `--memory=files` they run where there is none, over files in the place of its memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.support.gpus.servers import gpu_server
from tests.support.scripted import extend_config
from tests.support.server import Copy, Server
from tests.support.tools import temporary_folder
from zmqtriton.host.gpus import Gpu

MIB = 1 << 20
#: Two instances on the first GPU, so that there is something to share.
TWO_ON_ONE = "instance_group { count: 2 kind: KIND_GPU gpus: [ 0 ] }\n"
#: What processes may keep beyond what they had: pieces of CUDA's own and of cupy's pool.
SLACK = 64 * MIB


@contextmanager
def serving(
    memory: str,
    models: Sequence[str | Copy],
    options: Sequence[str] = (),
    instances: str = TWO_ON_ONE,
) -> Iterator[Server]:
    """Run a server over gRPC and HTTP, whose models have this memory; `ctl` finds it."""
    with temporary_folder() as folder:
        options = [f"--runtime-directory={folder}/run", *options]
        server = gpu_server(folder / "s", memory, models, ["grpc"], options)
        for path in server.repository.iterdir():
            if "ensemble" not in (path / "config.pbtxt").read_text("utf-8"):
                extend_config(server, path.name, instances)
        with server:
            yield server


def used_bytes(memory: str, server: Server) -> int:
    """Return what is in use of the first GPU; or what processes have mapped of the files."""
    if memory == "cuda":
        return Gpu.chosen()[0].used_memory()[0]
    mapped = set[Path]()
    for process in (psutil.Process(), *psutil.Process(server.pid).children(recursive=True)):
        with suppress(OSError, psutil.Error):
            maps = Path(f"/proc/{process.pid}/maps").read_text("utf-8")
            mapped.update(map(Path, re.findall(rf"{server.scratch}/0-\w+", maps)))
    return sum(path.stat().st_size for path in mapped if path.exists())
