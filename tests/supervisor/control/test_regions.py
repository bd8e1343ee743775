"""Clients' shared memory as the supervisor keeps it: who is told, and when a call is answered."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.supervisor.world import Call, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.control.regions import MAX_REGIONS
from zmqtriton_floor import wire
from zmqtriton_floor.errors import (
    AlreadyExists,
    InternalError,
    InvalidArgument,
    NotFound,
    Unsupported,
)


@pytest.fixture
def world() -> SupervisorHarness:
    world = SupervisorHarness(allow_client_shm=True).start()
    world.fork_http_worker()
    return world


def register(world: SupervisorHarness, name: str = "r", **changes: Any) -> Call:
    arguments = {"name": name, "key": "/k", "offset": 0, "byte_size": 64, **changes}
    return world.call_as(world.serial("grpc"), "regions.register", arguments)


def unregister(world: SupervisorHarness, name: str = "") -> Call:
    return world.call_as(world.serial("grpc"), "regions.unregister", {"name": name})


def status(world: SupervisorHarness, name: str = "") -> Call:
    return world.call("regions.status", {"name": name})


def test_a_region_is_told_to_every_frontend_before_the_call_is_answered(
    world: SupervisorHarness,
) -> None:
    world.silent.add(world.serial("http"))

    call = register(world, offset=16)

    assert call.answer is None
    announcements = [wire.AddRegion(1, "r", 16, 64)]
    assert (announcements, announcements) == (
        world.messages_to("grpc", wire.AddRegion),
        world.messages_to("http", wire.AddRegion),
    )
    assert [] == world.messages_to("metrics", wire.AddRegion)

    (sync,) = world.messages_to("http", wire.Sync)[-1:]
    world.receive(world.serial("http"), wire.Synced(sync.number))
    assert call.result is None


@pytest.mark.row("C91")
def test_the_status_is_what_was_registered(world: SupervisorHarness) -> None:
    register(world, "a", key="/x", offset=8)
    register(world, "b", key="y", byte_size=3)

    a = {"name": "a", "key": "/x", "offset": 8, "byte_size": 64}
    b = {"name": "b", "key": "y", "offset": 0, "byte_size": 3}
    assert [a, b] == status(world).result
    assert [b] == status(world, "b").result
    assert status(world, "c").error == (
        NotFound.number,
        "Unable to find system shared memory region: 'c'",
    )


@pytest.fixture
def registered(world: SupervisorHarness) -> SupervisorHarness:
    """The server, with the region r."""
    register(world)
    return world


def test_a_frontend_that_comes_later_is_told_of_all_regions(registered: SupervisorHarness) -> None:
    registered.fork_http_worker()

    assert 2 == len(registered.messages_to("http", wire.AddRegion))


@pytest.mark.row("C90")
def test_a_name_is_registered_once(registered: SupervisorHarness) -> None:
    assert register(registered).error == (
        AlreadyExists.number,
        "shared memory region 'r' already in manager",
    )


@pytest.mark.slow
def test_so_many_regions_and_no_more(world: SupervisorHarness) -> None:
    for number in range(MAX_REGIONS):
        assert (0, "") == register(world, str(number)).error

    text = "failed to register shared memory region 'r': there are 1024 already"
    assert (InvalidArgument.number, text) == register(world).error
    unregister(world)
    assert (0, "") == register(world).error


@pytest.mark.row("C92")
def test_an_unregistration_waits_for_the_requests_that_use_the_region(
    registered: SupervisorHarness,
) -> None:
    registered.used_regions.add(1)

    call = unregister(registered, "r")

    assert [] == status(registered).result
    assert call.answer is None
    registered.receive(registered.serial("http"), wire.RegionReleased(1))
    assert call.answer is None
    assert {1} == registered.open_regions  # a stub may be about to ask for it
    registered.receive(registered.serial("grpc"), wire.RegionReleased(1))
    assert call.result is None
    assert set() == registered.open_regions


def test_a_frontend_that_dies_uses_nothing_any_more(registered: SupervisorHarness) -> None:
    registered.used_regions.add(1)
    call = unregister(registered, "r")
    registered.receive(registered.serial("grpc"), wire.RegionReleased(1))

    registered.kill_process(registered.serial("http"))

    assert call.result is None


def test_where_it_is_not_allowed_only_the_status_answers() -> None:
    world = SupervisorHarness(allow_client_shm=False).start()

    disabled = (
        Unsupported.number,
        "Client shared memory is disabled. "
        "Start the server with '--allow-client-shm=true' to enable.",
    )
    assert (disabled, disabled) == (register(world).error, unregister(world).error)
    assert register(world, kind="cuda").error == disabled
    assert [] == status(world).result
    assert world.has_logged("Client shared memory is disabled")


def test_nobody_but_frontends_registers(world: SupervisorHarness) -> None:
    arguments = {"name": "r", "key": "/k", "offset": 0, "byte_size": 64}

    assert world.call("regions.register", arguments).error[0] == InvalidArgument.number


def test_cuda_memory_is_not_supported(world: SupervisorHarness) -> None:
    assert register(world, kind="cuda").error == (
        InvalidArgument.number,
        "failed to register CUDA shared memory region: 'r', GPUs not supported",
    )
    register(world)
    cuda = {"kind": "cuda", "name": ""}
    assert [] == world.call("regions.status", cuda).result
    assert world.call("regions.status", {**cuda, "name": "r"}).error == (
        NotFound.number,
        "The region named 'r' is registered as system shared memory, not CUDA shared memory",
    )
    # Clients do this before they register anything; it must not touch what is no GPU's.
    assert world.call_as(world.serial("grpc"), "regions.unregister", cuda).result is None
    assert 1 == len(status(world).result)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "///",
        "//name/",
        "name/",
        "../dev/shm/name",
        "/proc/self/fd/3",
        ".",
        "/..",
        "a\0b",
        "k" * 256,
        "ü" * 128,
        "sem.mutex",
        "/sem.mutex",
        *(f"{'/' * n}triton_python_backend_shm_region_1" for n in range(4)),
    ],
)
def test_a_key_that_is_not_for_clients_is_refused_like_one_that_does_not_exist(
    world: SupervisorHarness, key: str
) -> None:
    unopenable = InternalError.number, f"Unable to open shared memory region: '{key}'"

    assert unopenable == register(world, key=key).error
    # the key is the first that is looked at
    assert unopenable == register(world, "", key=key, byte_size=0).error
    assert [] == status(world).result


@pytest.mark.parametrize(
    "changes",
    [
        *({"byte_size": size} for size in (0, -1, 1.5, "12", True, None, 2**63, 2**64)),
        *({"offset": offset} for offset in (-1, 1.5, "12", True, 2**63, 2**64 - 1)),
    ],
    ids=str,
)
def test_numbers_that_make_no_sense_are_refused(
    world: SupervisorHarness, changes: dict[str, Any]
) -> None:
    assert register(world, **changes).error == (
        InvalidArgument.number,
        "failed to register shared memory region 'r': invalid args",
    )


@pytest.mark.parametrize("changes", [{"name": ""}, {"name": "n" * 256}, {"name": 3}, {"key": 3}])
def test_a_name_must_be_one(world: SupervisorHarness, changes: dict[str, Any]) -> None:
    assert register(world, **changes).error[0] == InvalidArgument.number


# --------------------------------------------------------------- memory of a GPU


HANDLE = bytes(range(64))
CUDA = {
    "kind": "cuda",
    "name": "c",
    "raw_handle": base64.b64encode(HANDLE).decode(),
    "device_id": 1,
    "byte_size": 64,
}


@pytest.fixture
def gpus() -> SupervisorHarness:
    world = SupervisorHarness(make_blueprint("m"), allow_client_shm=True, gpus=(0, 1)).start()
    world.can_map_regions = True
    world.fork_http_worker()
    return world


def call_of(world: SupervisorHarness, verb: str, **changes: Any) -> Call:
    return world.call_as(world.serial("grpc"), f"regions.{verb}", {**CUDA, **changes})


@pytest.mark.row("C94")
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        *(
            (
                {"raw_handle": handle},
                "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
            )
            for handle in ("", "###", "AAAA", base64.b64encode(bytes(65)).decode(), 5, None)
        ),
        *(
            ({"device_id": gpu}, "failed to register shared memory region: invalid args")
            for gpu in (-1, 2, 2**31, "0", None, True)
        ),
        *(
            ({"byte_size": size}, "failed to register shared memory region 'c': invalid args")
            for size in (0, -1, 2**63, "8", None)
        ),
    ],
    ids=str,
)
def test_what_cannot_be_memory_of_a_gpu_is_refused(
    gpus: SupervisorHarness, changes: dict[str, Any], text: str
) -> None:
    assert call_of(gpus, "register", **changes).error == (InvalidArgument.number, text)

    assert [] == call_of(gpus, "status", name="").result


def test_each_kind_is_unregistered_by_itself(gpus: SupervisorHarness) -> None:
    call_of(gpus, "register")
    register(gpus)

    for name in ("c", ""):
        assert unregister(gpus, name).result is None
        assert 1 == len(call_of(gpus, "status", name="").result)

    assert [] == status(gpus).result
    register(gpus)
    for name in ("r", ""):
        assert call_of(gpus, "unregister", name=name).result is None
    assert ([], 1) == (call_of(gpus, "status", name="").result, len(status(gpus).result))


def test_an_unregistration_does_not_wait_for_a_stub_that_is_dead(gpus: SupervisorHarness) -> None:
    stub = gpus.serial("m_0_0")
    call_of(gpus, "register")
    gpus.region_readers.add(stub)
    gpus.silent.add(stub)
    call = call_of(gpus, "unregister")
    assert call.answer is None

    gpus.kill_process(stub)

    assert call.result is None
