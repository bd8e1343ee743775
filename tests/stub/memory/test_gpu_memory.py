"""A stub's memory of GPUs, with files in its place, in one process."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stub.api.capsules import Producer
from tests.stub.supervisor import FakeLine, make_client
from tests.support.host_gpu import ROOM, STREAM, HostGpu, OnGpu, contents, numbers
from tests.support.refusals import refusal
from zmqtriton_floor import wire
from zmqtriton_floor.arena import Arena
from zmqtriton_floor.errors import MEMORY_GONE, ProtocolError, Unavailable
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_stub.api import dlpack, pb_utils
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.api.tensor import packed
from zmqtriton_stub.memory import gpu
from zmqtriton_stub.memory.gpu_memory import Borrowed, OnGpus
from zmqtriton_stub.memory.tensor_memory import TensorMemory

pytestmark = pytest.mark.slow

ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)


class Pair:
    """One process that gives and one that takes, and the supervisor between them."""

    def __init__(self) -> None:
        self.arena = Arena(7)
        self.made: list[wire.CreateSegment] = []
        self.refusal = ""
        self.lent = OnGpus(self.arena, self._register, lambda blocks: None)
        self.released: list[wire.Block] = []
        self.borrowed = Borrowed(self.released.extend)

    def _register(self, made: wire.CreateSegment) -> str:
        self.made.append(made)
        return self.refusal

    def give(self, array: Any) -> wire.Reference:
        reference, blocks = self.lent.place(gpu.uploaded(0, array.tobytes()))
        assert [block.block for block in blocks] == [reference.block]
        return reference

    def introduce(self, size: int | None = None) -> None:
        """The taker has asked for all segments."""
        for made in self.made:
            self.borrowed.add(7, made.segment, made.handle, made.size if size is None else size)

    def take(self, *references: wire.Reference, is_leased: bool = True) -> list[gpu.DeviceSpan]:
        return self.borrowed.open(references, is_leased=is_leased)


@pytest.fixture
def pair(driver: HostGpu) -> Pair:
    return Pair()


def test_a_tensor_goes_from_one_process_to_another(pair: Pair, driver: HostGpu) -> None:
    references = [pair.give(ARRAY), pair.give(ARRAY + 1)]
    pair.introduce()

    first, second = pair.take(*references)

    assert (ARRAY.ravel().tolist(), (ARRAY + 1).ravel().tolist()) == (
        numbers(first, np.float32).tolist(),
        numbers(second, np.float32).tolist(),
    )
    # One segment, of whole pieces of CUDA's, opened once.
    assert (1, 1, 0) == (len(pair.made), driver.opens, pair.made[0].size % (2 << 20))


def test_a_lease_ends_with_the_last_array_and_after_all_kernels(
    pair: Pair, driver: HostGpu
) -> None:
    reference = pair.give(ARRAY)
    pair.introduce()
    [span] = pair.take(reference)
    array = numbers(span, np.float32)
    assert [wire.Block(7, reference.segment, reference.block)] == pair.borrowed.leased()

    del span
    gc.collect()
    assert ([], []) == (pair.released, driver.settled)
    del array

    assert [wire.Block(7, reference.segment, reference.block)] == pair.released
    assert ([0], []) == (driver.settled, pair.borrowed.leased())


def test_inputs_that_are_still_read_when_their_request_is_answered_are_leased_then(
    pair: Pair,
) -> None:
    references = [pair.give(ARRAY), pair.give(ARRAY)]
    blocks = [wire.Block(*reference[:3]) for reference in references]
    pair.introduce()
    [kept, done] = pair.take(*references, is_leased=False)
    del done

    assert [blocks[0]] == pair.borrowed.leave(blocks)

    assert [] == pair.borrowed.leave(blocks)
    del kept
    assert [blocks[0]] == pair.released


@pytest.mark.parametrize(
    "change", [{"offset": 1 << 40}, {"size": 1 << 40}, {"offset": -1}, {"owner": 8}, {"segment": 9}]
)
def test_nothing_is_opened_beyond_the_true_memory(pair: Pair, change: dict[str, Any]) -> None:
    good = pair.give(ARRAY)
    # What the owner has said of its size does not count.
    pair.introduce(size=1 << 50)

    with pytest.raises(ProtocolError):
        pair.take(good, good._replace(**change))

    assert ([], []) == (pair.released, pair.borrowed.leased())


@pytest.mark.parametrize("handle", [b"", b"0-nothing", bytes(64), b"\xff" * 80])
def test_a_handle_that_opens_nothing_is_an_error(pair: Pair, handle: bytes) -> None:
    with pytest.raises(Unavailable):
        pair.borrowed.add(7, 1, handle, 100)

    assert not pair.borrowed.has(7, 1)


def test_the_memory_of_the_dead_is_closed_when_nobody_reads_it(pair: Pair, driver: HostGpu) -> None:
    reference = pair.give(ARRAY)
    pair.introduce()
    [span] = pair.take(reference)

    pair.borrowed.remove(*reference[:2])
    assert (1, 0.0) == (len(driver.opened), numbers(span, np.float32)[0])
    del span

    assert {} == driver.opened
    pair.borrowed.remove(*reference[:2])  # as of a process whose memory was never read here
    with pytest.raises(ProtocolError):
        pair.take(reference)


def test_freed_memory_is_used_again(pair: Pair) -> None:
    for _ in range(50):
        pair.arena.leases.end([pair.give(np.zeros(1 << 20, np.uint8)).block])

    assert 1 == len(pair.made)


def test_one_process_takes_no_more_than_its_share(pair: Pair, driver: HostGpu) -> None:
    span = gpu.DeviceSpan(0, 0, ROOM // 2, None)

    with pytest.raises(Unavailable, match="more than one process may have on GPU 0"):
        pair.lent.place(span)

    assert {} == driver.allocated


def test_memory_that_the_supervisor_refuses_is_given_back(pair: Pair, driver: HostGpu) -> None:
    pair.refusal = "The server has 3 segments already."
    span = gpu.uploaded(0, ARRAY.tobytes())

    with pytest.raises(Unavailable, match="3 segments"):
        pair.lent.place(span)

    assert [span.address] == list(driver.allocated)


def test_who_takes_none_gets_a_copy_on_the_cpu(pair: Pair) -> None:
    # as the pair has one
    both = OnGpus(pair.arena, pair._register, pair.released.extend)
    both.borrowed = pair.borrowed
    reference = pair.give(ARRAY)
    pair.introduce()
    rows = [wire.Tensor("A", 11, [3, 4], reference), wire.Tensor("B", 11, [1], b"\0\0\0\0")]

    opened = both.open(rows, is_leased=True, takes_gpu=False)

    assert ARRAY.tobytes() == opened[0].data.tobytes()
    assert rows[1] == opened[1]
    assert [wire.Block(*reference[:3])] == pair.released


class Line:
    """A lifeline whose other end answers each question with one message, or not at all."""

    ended = False

    def __init__(self, *answers: Any) -> None:
        self.messages: list[Any] = []
        self._answers = list(answers)

    def send(self, message: Any) -> None:
        self.messages.append(message)

    def wait(self, timeout_s: float) -> bool:
        return bool(self._answers)

    def receive(self) -> list[tuple[Any, list[int]]]:
        return [(self._answers.pop(0), [])] if self._answers else []


def _memory(*answers: Any) -> TensorMemory:
    line: Any = Line(*answers)
    broker: Any = FakeLine()
    return TensorMemory(make_client(line), broker, 9, Memory())


@pytest.fixture
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(gpu, "_driver", None)
    monkeypatch.setattr(gpu, "_why_not", "")


@pytest.mark.usefixtures("no_cupy")
def test_who_cannot_use_a_gpu_says_so_and_releases_what_it_was_sent() -> None:
    memory = _memory(wire.SegmentOpened(7, 1, 4096, b"handle"))
    # in place of the connection to the broker
    line: Any = memory._line
    row = wire.Tensor("A", 11, [1], wire.Reference(7, 1, 2, 0, 4))

    with pytest.raises(Unavailable, match="memory of GPUs can only be used where cupy finds one"):
        memory.open([row], is_leased=True)

    assert [wire.Block(7, 1, 2)] == line.released
    assert not gpu.is_usable()


def test_memory_on_a_gpu_that_has_ended_with_its_owner_is_one_clear_error() -> None:
    memory = _memory(wire.SegmentOpened(7, 1, 0))
    # in place of the connection to the broker
    line: Any = memory._line
    row = wire.Tensor("A", 11, [1], wire.Reference(7, 1, 2, 0, 4))

    assert (MEMORY_GONE, [wire.Block(7, 1, 2)]) == (
        refusal(Unavailable, memory.open, [row], is_leased=True),
        line.released,
    )


def test_memory_that_was_registered_too_late_is_taken_back() -> None:
    line: Any = Line(wire.SegmentCreated(3, 0, ""), wire.SegmentCreated(4, 14, "no"))
    supervisor = make_client(line)

    supervisor.receive()
    supervisor.receive()

    assert [wire.FreeSegment(3)] == line.messages


def test_a_stub_without_such_tensors_loads_nothing_for_them() -> None:
    code = (
        "import sys; from zmqtriton_stub import loop; from zmqtriton_stub.api import pb_utils;"
        "print([m for m in sys.modules if 'gpu_' in m or m == 'cupy'])"
    )
    environment = {"PYTHONPATH": str(Path(gpu.__file__).parents[2])}

    finished = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert "[]" == finished.stdout.strip()


# -------------------------------------------------------------- pb_utils.Tensor


@pytest.mark.row("A42", "A43", "A45")
def test_a_tensor_on_a_gpu_is_given_back_where_it_lies(driver: HostGpu) -> None:
    tensor = pb_utils.Tensor.from_dlpack("A", OnGpu(ARRAY))

    references = sys.getrefcount(tensor)
    capsule = tensor.to_dlpack()
    assert references + 1 == sys.getrefcount(tensor)
    del capsule
    assert references == sys.getrefcount(tensor)
    assert not tensor.is_cpu()
    assert (2, 0) == tensor.__dlpack_device__()
    assert ([3, 4], pb_utils.numpy_to_triton_type(np.float32)) == (
        tensor.shape(),
        tensor.triton_dtype(),
    )
    assert "Tensor is stored in GPU and cannot be converted to NumPy." == refusal(
        TritonModelException, tensor.as_numpy
    )
    # What is written there is seen by whoever else has it.
    contents(tensor)[0, 0] = 5
    assert 5.0 == contents(tensor)[0, 0]


@pytest.mark.row("A46")
def test_a_producer_is_asked_to_write_all_before_a_stream_of_ours_goes_on(
    driver: HostGpu,
) -> None:
    producer = OnGpu(ARRAY)

    pb_utils.Tensor.from_dlpack("A", producer)
    assert ([STREAM], []) == (producer.streams, driver.settled)

    # A bare capsule does not say who writes to it, so all that runs there is waited for.
    pb_utils.Tensor.from_dlpack("A", OnGpu(ARRAY).__dlpack__())
    assert [0] == driver.settled


@pytest.mark.row("A45")
def test_a_copy_is_one(driver: HostGpu) -> None:
    tensor = pb_utils.Tensor.from_dlpack("A", OnGpu(ARRAY))

    contents(pb_utils.Tensor.from_dlpack("B", tensor.__dlpack__(copy=True)))[:] = 0

    assert np.array_equal(ARRAY, contents(tensor))
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(1, 0))


@pytest.mark.row("A47")
def test_bfloat16_and_booleans_keep_their_names_on_a_gpu(driver: HostGpu) -> None:
    source = driver.give(gpu.uploaded(0, bytes(8)), np.dtype(np.uint16), (4,), None)
    # numpy has no bfloat16
    dlpack._tensor_of(source).datatype.code = 4
    bfloat = pb_utils.Tensor.from_dlpack("A", source)
    boolean = pb_utils.Tensor.from_dlpack("B", OnGpu(np.array([True, False])))

    again = pb_utils.Tensor.from_dlpack("A", bfloat)
    boolean_again = pb_utils.Tensor.from_dlpack("B", boolean.to_dlpack())

    assert (14, 14) == (bfloat.triton_dtype(), again.triton_dtype())
    assert (1, 1) == (boolean.triton_dtype(), boolean_again.triton_dtype())


def test_memory_of_a_producer_is_let_go_with_the_tensor(driver: HostGpu) -> None:
    producer = Producer(ARRAY, device=2)
    tensor: Any = pb_utils.Tensor.from_dlpack("A", producer.capsule())
    assert 0 == producer.deleted

    row = packed(tensor)
    del tensor
    assert 0 == producer.deleted
    del row

    assert 1 == producer.deleted


def test_a_tensor_without_elements_needs_no_gpu(driver: HostGpu) -> None:
    tensor = pb_utils.Tensor.from_dlpack(
        "A", Producer(np.empty((0, 4), np.int16), device=2).capsule()
    )

    assert ([0, 4], True) == (tensor.shape(), tensor.is_cpu())
