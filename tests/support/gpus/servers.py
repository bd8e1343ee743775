"""Servers whose models have a GPU: a real one, or files that stand for its memory."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import host_gpu
from tests.support.server import Copy, Server

#: For fixtures: what is in the place of memory on a GPU.
MEMORY = ["files", pytest.param("cuda", marks=pytest.mark.gpu)]
_HOST_NVML = Path(__file__).parent / "host_nvml"
#: What a model imports to use a GPU.
_IMPORTED = "host_gpu"


def nvml_variables(gpus: int, memory: Path) -> dict[str, str]:
    """Return the variables by which processes find so many GPUs, with memory by files there."""
    memory.mkdir()
    return {
        "PYTHONPATH": str(_HOST_NVML),
        "HOST_NVML_GPUS": str(gpus),
        "HOST_NVML_MEMORY": str(memory),
    }


def mapped(memory: Path, pid: int) -> int:
    """Count the files in place of a GPU's memory that a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text().count(f"{memory}/")


def gpu_server(
    directory: Path,
    memory: str,
    models: Sequence[str | Copy],
    frontends: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Server:
    """A server, not yet started, whose models have one of MEMORY; a skip if there is no GPU."""
    source = Path(host_gpu.__file__)
    environment: Mapping[str, str] = {"PYTHONPATH": str(_HOST_NVML)}
    if memory == "cuda":
        if not pytest.importorskip("cupy").is_available():
            pytest.skip("cupy finds no GPU")
        source, environment = source.with_name("cuda_gpu.py"), {}
    how: dict[str, Any] = {"environment": environment, "frontends": frontends}
    server = Server(directory, models, options=options, **how)
    if "gpu_read" in models:  # and the same with inputs in the memory of the processor alone
        server.add_model("gpu_read", "gpu_read_cpu")
        server.edit_config("gpu_read_cpu", "FORCE_CPU_ONLY_INPUT_TENSORS", "-")
    for code in server.repository.glob("*/1/model.py"):
        if _IMPORTED in code.read_text("utf-8"):
            shutil.copy(source, code.with_name(f"{_IMPORTED}.py"))
    return server
