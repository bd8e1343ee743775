"""Memory of a client's on a GPU, or in files that stand for it, which a server's models use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.clients import module_of
from tests.support.gpus.host_cuda import cuda_shared_memory
from tests.support.server import Server


@contextmanager
def client_cuda(server: Server, memory: str) -> Iterator[Any]:
    """tritonclient.utils.cuda_shared_memory, over one of servers.MEMORY."""
    if memory == "cuda":
        pytest.importorskip("cuda.bindings.runtime")
        import tritonclient.utils.cuda_shared_memory as client_module

        yield client_module
        return
    with cuda_shared_memory(server.scratch) as client_module:
        yield client_module


class Regions:
    """Memory of this client's on a GPU, registered with the server."""

    def __init__(self, cuda: Any, client: Any) -> None:
        self.cuda = cuda
        self._client = client
        self.handles: dict[str, Any] = {}

    def create(self, name: str, array: Any, size: int = 0) -> Any:
        """Create memory with this content and perhaps more room, and register it."""
        handle = self.allocate(name, size or array.nbytes)
        self.cuda.set_shared_memory_region(handle, [array])
        raw = self.cuda.get_raw_handle(handle)
        self._client.register_cuda_shared_memory(name, raw, 0, size or array.nbytes)
        return handle

    def allocate(self, name: str, size: int) -> Any:
        handle = self.handles[name] = self.cuda.create_shared_memory_region(name, size, 0)
        return handle

    def write(self, name: str, array: Any) -> None:
        self.cuda.set_shared_memory_region(self.handles[name], [array])

    def read(self, name: str, array: Any) -> Any:
        """Return the contents in the form of an array."""
        return self.cuda.get_contents_as_numpy(self.handles[name], array.dtype, array.shape)

    def close(self) -> None:
        for name in self.handles:
            self._client.unregister_cuda_shared_memory(name)
        for handle in self.handles.values():
            self.cuda.destroy_shared_memory_region(handle)
        self.handles.clear()


def infer(
    client: Any,
    model: str,
    source: tuple[str, str],
    target: tuple[str, str],
    count: int,
    others: Sequence[str] = (),
) -> Any:
    """Ask with an input and an output in regions, each a tensor and its region; others travel."""
    module, size = module_of(client), 4 * count
    tensor = module.InferInput(source[0], [count], "FP32")
    tensor.set_shared_memory(source[1], size)
    output = module.InferRequestedOutput(target[0])
    output.set_shared_memory(target[1], size)
    outputs = [output, *map(module.InferRequestedOutput, others)]
    return client.infer(model, [tensor], outputs=outputs)
