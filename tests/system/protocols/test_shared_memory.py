"""Clients' shared memory over both protocols, with two processes for each.

Whichever of them hears of a region, all know it. And attacks by way of it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs
from tests.support.server import Server

pytestmark = [pytest.mark.system, pytest.mark.as_nobody]

PROCESSES = ("--http-workers=2", "--grpc-processes=2")
#: Each on a connection of its own; the kernel gives all of them to one process once in 2^15 runs.
CONNECTIONS = 16
SIZE = 64 * 1024
#: With which names in /dev/shm begin: others may test on the same machine.
OWN = f"zmqtriton_{os.getpid()}_"
SHAPE = [SIZE // 4]


@pytest.fixture(scope="module")
def tracker() -> Iterator[None]:
    """The client's library has Python start a process that tracks shared memory."""
    shm.destroy_shared_memory_region(shm.create_shared_memory_region("t", f"{OWN}track", 8))
    yield
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tracker: None) -> Iterator[Server]:
    models = ["identity_fp32", "string_upper", "journal"]
    directory = tmp_path_factory.mktemp("shm") / "s"
    with Server(directory, models=models, options=PROCESSES, frontends=("grpc",)) as server:
        yield server


def open_client(server: Server, protocol: str) -> Any:
    """One with a connection that it shares with nobody."""
    if protocol == "http":
        return http_client.InferenceServerClient(server.url.removeprefix("http://"))
    alone = [("grpc.use_local_subchannel_pool", 1)]
    return grpc_client.InferenceServerClient(server.grpc_address, channel_args=alone)


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    with open_client(server, request.param) as client:
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


def module_of(client: Any) -> Any:
    return http_client if isinstance(client, http_client.InferenceServerClient) else grpc_client


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
            with open_client(server, protocol) as other:
                result = infer(other, "in", "out")
            output = result.get_output("OUTPUT0")
            shape = output["shape"] if protocol == "http" else list(output.shape)
            assert SHAPE == shape
            assert np.array_equal(data, shm.get_contents_as_numpy(target, np.float32, SHAPE))

    client.unregister_system_shared_memory("in")

    for protocol in ("http", "grpc"):
        for _ in range(CONNECTIONS):
            with (
                open_client(server, protocol) as other,
                pytest.raises(InferenceServerException, match="Unable to find shared memory"),
            ):
                infer(other, "in", "out")


@pytest.mark.row("C91")
def test_the_status_names_what_is_registered(
    server: Server, client: Any, create: Callable[..., Any]
) -> None:
    create(f"{OWN}a")
    client.register_system_shared_memory("a", f"/{OWN}a", 64, offset=128)

    with open_client(server, "http") as http, open_client(server, "grpc") as grpc:
        entry = {"name": "a", "key": f"/{OWN}a", "offset": 128, "byte_size": 64}
        assert [entry] == http.get_system_shared_memory_status()
        assert [entry] == http.get_system_shared_memory_status("a")
        (region,) = grpc.get_system_shared_memory_status(as_json=True)["regions"].values()
        assert {**entry, "offset": "128", "byte_size": "64"} == region
        for other in (http, grpc):
            text = "Unable to find system shared memory region: 'b'"
            with pytest.raises(InferenceServerException, match=text):
                other.get_system_shared_memory_status("b")


def test_strings_travel_too(client: Any, create: Callable[..., Any]) -> None:
    from tritonclient.utils import serialize_byte_tensor

    handle, module = create(f"{OWN}s"), module_of(client)
    client.register_system_shared_memory("s", f"{OWN}s", SIZE)
    data = serialize_byte_tensor(np.array([[b"ab", b"", b"c"]], np.object_)).item()
    shm.set_shared_memory_region(handle, [np.frombuffer(data, np.uint8)], offset=3)
    tensor = module.InferInput("INPUT0", [1, 3], "BYTES")
    tensor.set_shared_memory("s", len(data), 3)
    output = module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("s", 1000, 1001)

    client.infer("string_upper", [tensor], outputs=[output])

    contents = shm.get_contents_as_numpy(handle, np.object_, [1, 3], offset=1001)
    assert [[b"AB", b"", b"C"]] == contents.tolist()


# --------------------------------------------------------------------- attacks


def register(server: Server, **changes: Any) -> tuple[int, Any]:
    document = {"key": f"/{OWN}a", "offset": 0, "byte_size": SIZE, **changes}
    return server.request_json("/v2/systemsharedmemory/region/a/register", document)


@pytest.fixture
def region(server: Server, create: Callable[..., Any]) -> Iterator[Any]:
    yield create(f"{OWN}a")
    server.request_json("/v2/systemsharedmemory/unregister", {})


def test_no_memory_of_the_server_has_a_name(server: Server, client: Any) -> None:
    module = module_of(client)
    [tensor] = infer_inputs(module, INPUT0=np.zeros(1 << 19, np.float32))

    client.infer("identity_fp32", [tensor])

    assert [] == [name for name in open_files(server) if name.startswith("/dev/shm/")]


def test_links_and_other_files_are_not_opened(server: Server, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * SIZE)
    link, fifo = Path(f"/dev/shm/{OWN}link"), Path(f"/dev/shm/{OWN}fifo")
    with contextlib.ExitStack() as stack:
        link.symlink_to(secret)
        stack.callback(link.unlink)
        os.mkfifo(fifo)
        stack.callback(fifo.unlink)

        for key in (f"/{OWN}link", f"/{OWN}fifo", f"/{OWN}missing"):
            expected = f"Unable to open shared memory region: '{key}'"
            assert (500, {"error": expected}) == register(server, key=key)


@pytest.mark.parametrize("changes", [{"byte_size": SIZE + 1}, {"offset": 1}], ids=str)
def test_a_region_must_lie_in_its_file(server: Server, region: Any, changes: Any) -> None:
    assert 400 == register(server, **changes)[0]
    assert (200, []) == server.request_json("/v2/systemsharedmemory/status")


class Users:
    """Threads that have half of region a copied to its other half, again and again."""

    HALF = SIZE // 2

    def __init__(self, server: Server) -> None:
        self._server = server
        self._is_over = threading.Event()
        self.right = 0
        self.wrong: list[str] = []
        self._threads = [
            threading.Thread(target=self._use, args=(p,)) for p in ("http", "grpc") * 4
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _use(self, protocol: str) -> None:
        with open_client(self._server, "grpc") as client:
            while not self._is_over.is_set():
                try:
                    if protocol == "http":  # its library leaves descriptors to each thread
                        self._infer_over_http()
                    else:
                        half = self.HALF
                        place = {"shape": [half // 4], "size": half, "room": half}
                        infer(client, "a", "a", **place, output_offset=half)
                    self.right += 1
                except InferenceServerException as error:
                    if "Unable to find shared memory region: 'a'" not in str(error):
                        self.wrong.append(str(error))
                self._is_over.wait(0.005)

    def _infer_over_http(self) -> None:
        half = self.HALF
        place = {"shared_memory_region": "a", "shared_memory_byte_size": half}
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [half // 4], "parameters": place}
        output = {"name": "OUTPUT0", "parameters": {**place, "shared_memory_offset": half}}
        document = {"inputs": [tensor], "outputs": [output]}
        status, answer = self._server.request_json("/v2/models/identity_fp32/infer", document)
        if status != 200:
            raise InferenceServerException(answer["error"])


@pytest.mark.long(
    "system/protocols/test_mapped_regions.py::test_an_unregistration_waits_for_what_a_stub_reads_and_writes",
    "supervisor/control/test_regions.py::test_an_unregistration_waits_for_the_requests_that_use_the_region",
)
def test_what_is_unregistered_in_the_midst_of_requests_is_right_or_not_found(
    server: Server, region: Any
) -> None:
    pids = server.pids()
    data = np.arange(SHAPE[0], dtype=np.float32)
    shm.set_shared_memory_region(region, [data])

    users = Users(server)
    deadline = time.monotonic() + 3
    with open_client(server, "http") as client:
        # However long the machine takes to get one of them through.
        while time.monotonic() < deadline or not users.right + len(users.wrong):
            register(server)
            time.sleep(0.02)
            client.unregister_system_shared_memory()
    users.stop()

    assert [] == users.wrong
    assert users.right > 0
    assert pids == server.pids()
    first, second = shm.get_contents_as_numpy(region, np.float32, SHAPE).reshape(2, -1)
    assert np.array_equal(data[: len(first)], first)
    assert np.array_equal(first, second)
    assert [] == [name for name in open_files(server) if f"{OWN}a" in name]


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
