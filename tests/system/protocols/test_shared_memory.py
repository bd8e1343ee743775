"""Clients' shared memory over both protocols, with two processes for each.

Whichever of them hears of a region, all know it. And attacks by way of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.server import Server

PROCESSES = ("--http-workers=2", "--grpc-processes=2")
pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.as_nobody,
    pytest.mark.server(
        models=["identity_fp32", "string_upper", "journal"], options=PROCESSES, frontends=["grpc"]
    ),
]
#: Each on a connection of its own; the kernel gives all of them to one process once in 2^7 runs.
CONNECTIONS = 8
SIZE = 64 * 1024
#: With which names in /dev/shm begin: others may test on the same machine.
OWN = f"zmqtriton_{os.getpid()}_"
SHAPE = [SIZE // 4]


@pytest.fixture(scope="module", autouse=True)
def tracker() -> Iterator[None]:
    """The client's library has Python start a process that tracks shared memory."""
    shm.destroy_shared_memory_region(shm.create_shared_memory_region("t", f"{OWN}track", 8))
    yield
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


def open_alone(server: Server, protocol: str) -> Any:
    """A client with a connection that it shares with nobody."""
    alone = {"channel_args": [("grpc.use_local_subchannel_pool", 1)]} if protocol == "grpc" else {}
    return open_client(server, protocol, **alone)


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    with open_alone(server, request.param) as client:
        yield client
        client.unregister_system_shared_memory()


@pytest.fixture
def create() -> Iterator[Callable[[str, int], Any]]:
    with ExitStack() as stack:

        def create(key: str, size: int = SIZE) -> Any:
            handle = shm.create_shared_memory_region(key, key, size, create_only=True)
            stack.callback(shm.destroy_shared_memory_region, handle)
            return handle

        yield create


def infer(client: Any, source: str, target: str, **places: Any) -> Any:
    """Has identity_fp32 copy from one region to another."""
    module = module_of(client)
    tensor = module.InferInput("INPUT0", places.pop("shape", SHAPE), "FP32")
    tensor.set_shared_memory(source, places.pop("size", SIZE), places.pop("offset", 0))
    output = module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory(target, places.pop("room", SIZE), places.pop("output_offset", 0))
    return client.infer("identity_fp32", [tensor], outputs=[output])


# ------------------------------------------------------------------------- use


@pytest.mark.row("C12", "C93", "D09")
def test_a_region_registered_anywhere_is_known_everywhere(
    server: Server, client: Any, create: Callable[..., Any]
) -> None:
    source, target = create(f"{OWN}in"), create(f"{OWN}out")
    client.register_system_shared_memory("in", f"{OWN}in", SIZE)
    client.register_system_shared_memory("out", f"{OWN}out", SIZE)

    for protocol in ("http", "grpc"):
        for number in range(CONNECTIONS):
            data = np.full(SHAPE, number + 1, np.float32)
            shm.set_shared_memory_region(source, [data])
            with open_alone(server, protocol) as other:
                result = infer(other, "in", "out")
            output = result.get_output("OUTPUT0")
            assert SHAPE == (output["shape"] if protocol == "http" else list(output.shape))
            assert np.array_equal(data, shm.get_contents_as_numpy(target, np.float32, SHAPE))

    client.unregister_system_shared_memory("in")

    for protocol in ("http", "grpc"):
        for _ in range(CONNECTIONS):
            with (
                open_alone(server, protocol) as other,
                pytest.raises(InferenceServerException, match="Unable to find shared memory"),
            ):
                infer(other, "in", "out")


# --------------------------------------------------------------------- attacks


def register(server: Server, **changes: Any) -> tuple[int, Any]:
    document = {"key": f"/{OWN}a", "offset": 0, "byte_size": SIZE, **changes}
    return server.request_json("/v2/systemsharedmemory/region/a/register", document)


def test_no_memory_of_the_server_has_a_name(server: Server, client: Any) -> None:
    inputs = infer_inputs(module_of(client), INPUT0=np.zeros(1 << 19, np.float32))

    client.infer("identity_fp32", inputs)

    assert [] == [name for name in open_files(server) if name.startswith("/dev/shm/")]


def open_files(server: Server) -> Iterator[str]:
    """Of every process of the server."""
    for pid in (pid for pids in server.pids().values() for pid in pids):
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    yield os.readlink(entry)


@pytest.mark.row("C95", "--allow-client-shm")
def test_it_is_off_where_others_than_this_machine_can_connect(tmp_path: Path) -> None:
    with Server(tmp_path / "s", options=["--http-address=0.0.0.0"], frontends=("grpc",)) as server:
        assert "for any name of a host; --http-allowed-host" in server.log_text()
        text = (
            "Client shared memory is disabled. "
            "Start the server with '--allow-client-shm=true' to enable."
        )
        assert (501, {"error": text}) == register(server)
        assert (501, {"error": text}) == server.request_json(
            "/v2/systemsharedmemory/unregister", {}
        )
        assert (200, []) == server.request_json("/v2/systemsharedmemory/status")
        with open_client(server, "grpc") as client:
            with pytest.raises(InferenceServerException, match="is disabled") as caught:
                client.register_system_shared_memory("a", "a", 8)
            assert "StatusCode.UNIMPLEMENTED" == caught.value.status()
