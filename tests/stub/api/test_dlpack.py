"""DLPack with numpy and with capsules that are made by hand."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.stub.api.capsules import Producer, bfloat16
from tests.support.refusals import refusal
from zmqtriton_floor import wire
from zmqtriton_stub.api import dlpack, pb_utils
from zmqtriton_stub.api.tensor import packed, received_tensor

pytestmark = pytest.mark.slow

NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)
NOT_CONTIGUOUS = (
    "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order "
    "are supported."
)


def _refusal(call: Callable[[], Any]) -> str:
    return refusal(pb_utils.TritonModelException, call)


@pytest.mark.parametrize("is_versioned", [False, True])
@pytest.mark.parametrize("how", ["capsule", "object"])
@pytest.mark.row("A44")
def test_memory_is_shared_and_deleted_when_nobody_reads_it(how: str, is_versioned: bool) -> None:
    producer = Producer(NUMBERS.copy(), is_versioned=is_versioned)
    source = producer.capsule() if how == "capsule" else producer

    tensor = pb_utils.Tensor.from_dlpack("IN", source)
    array = tensor.as_numpy()
    part = array[1:]
    array[1, 2] = 9

    assert ("IN", [2, 3], 11) == (tensor.name(), tensor.shape(), tensor.triton_dtype())
    # the producer's own memory has it
    assert producer._array[1, 2] == 9
    del tensor, array
    assert (0, [[3, 4, 9]]) == (producer.deleted, part.tolist())
    del part
    assert producer.deleted == 1


def test_a_capsule_is_taken_once() -> None:
    producer = Producer(NUMBERS)
    capsule = producer.capsule()
    taken = pb_utils.Tensor.from_dlpack("A", capsule)

    assert "has been used already" in _refusal(lambda: pb_utils.Tensor.from_dlpack("B", capsule))
    assert (0, [0, 1]) == (producer.deleted, taken.as_numpy()[0, :2].tolist())


@pytest.mark.parametrize("dtype", "? u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8".split())
def test_every_datatype_comes_in_and_goes_out(dtype: str) -> None:
    array = np.array([[0, 1, 1]], dtype)

    tensor = pb_utils.Tensor.from_dlpack("IN", Producer(array))
    again = pb_utils.Tensor.from_dlpack("IN", tensor.to_dlpack())

    assert pb_utils.numpy_to_triton_type(np.dtype(dtype)) == again.triton_dtype()
    assert (array.dtype, array.tolist()) == (again.as_numpy().dtype, again.as_numpy().tolist())


@pytest.mark.parametrize(
    ("array", "fields"),
    [
        (np.zeros(2, np.complex64), {}),
        (np.zeros(2, np.uint8), {"bits": 4}),
        (np.zeros(2, np.float32), {"lanes": 2}),
        (np.zeros(2, np.uint64), {"code": 3}),
    ],
)
def test_a_datatype_that_the_protocol_lacks_is_refused(array: Any, fields: Any) -> None:
    producer = Producer(array, **fields)

    text = _refusal(lambda: pb_utils.Tensor.from_dlpack("A", producer.capsule()))

    assert text.startswith("DLPack data type is not supported (code ")
    assert producer.deleted == 0  # it is still the capsule's


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2, 3), None),
        ((2, 3), (3, 1)),
        ((1, 6), (77, 1)),
        ((6, 1), (1, -5)),
        ((1, 1, 6, 1), (0, 9, 1, 4)),
        ((), ()),
    ],
)
@pytest.mark.row("A44")
def test_strides_count_only_where_there_is_a_next_element(shape: Any, strides: Any) -> None:
    array = NUMBERS.reshape(shape) if shape else np.array(5, np.float32)

    tensor = pb_utils.Tensor.from_dlpack("A", Producer(array, strides=strides))

    assert array.tolist() == tensor.as_numpy().tolist()


@pytest.mark.parametrize(
    ("shape", "strides"), [((2, 3), (1, 2)), ((2, 3), (4, 1)), ((6,), (2,)), ((6,), (-1,))]
)
@pytest.mark.row("A44")
def test_other_orders_than_c_are_refused(shape: Any, strides: Any) -> None:
    producer = Producer(NUMBERS.reshape(shape), strides=strides)

    assert NOT_CONTIGUOUS == _refusal(lambda: pb_utils.Tensor.from_dlpack("A", producer))


def test_data_may_begin_behind_their_address() -> None:
    tensor = pb_utils.Tensor.from_dlpack("A", Producer(NUMBERS[1:], offset=12))

    assert tensor.as_numpy().tolist() == [[3, 4, 5]]


def test_a_tensor_without_elements_needs_no_memory() -> None:
    producer = Producer(np.empty((0, 4), np.int16), strides=(9, 9))

    tensor = pb_utils.Tensor.from_dlpack("A", producer)

    assert ([0, 4], (0, 4), 1) == (tensor.shape(), tensor.as_numpy().shape, producer.deleted)


@pytest.mark.parametrize("device", [2, 13])
@pytest.mark.parametrize("how", ["capsule", "object"])
@pytest.mark.row("A45")
def test_memory_of_a_gpu_is_refused_in_plain_words(device: int, how: str) -> None:
    producer = Producer(NUMBERS, device=device)
    source = producer.capsule() if how == "capsule" else producer

    text = _refusal(lambda: pb_utils.Tensor.from_dlpack("A", source))

    assert text.startswith("DLPack tensor is stored in GPU, ")


@pytest.mark.parametrize("device", [1, 3])
@pytest.mark.row("A43", "A45")
def test_memory_of_the_host_is_taken_pinned_or_not(device: int) -> None:
    tensor = pb_utils.Tensor.from_dlpack("A", Producer(NUMBERS, device=device).capsule())

    assert tensor.is_cpu()
    assert (1, 0) == tensor.__dlpack_device__()


def test_other_devices_are_refused_by_their_number() -> None:
    text = _refusal(lambda: pb_utils.Tensor.from_dlpack("A", Producer(NUMBERS, device=10)))

    assert text == "DLDevice type 10 is not support by Python backend."


def test_what_must_not_be_written_stays_so() -> None:
    source = Producer(NUMBERS, is_versioned=True, is_read_only=True)

    assert not pb_utils.Tensor.from_dlpack("A", source).as_numpy().flags.writeable


def test_what_a_producer_raises_comes_through() -> None:
    class Refusing:
        def __dlpack__(self) -> Any:
            raise BufferError("not now")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(BufferError, match="not now"):
        pb_utils.Tensor.from_dlpack("A", Refusing())


@pytest.mark.row("A47")
def test_bfloat16_travels_by_dlpack_alone() -> None:
    tensor = pb_utils.Tensor.from_dlpack("A", Producer(bfloat16(1.5, -2), code=4))

    assert wire.Tensor("A", 14, [2], b"\xc0\x3f\x00\xc0") == packed(tensor)
    assert "BF16" in _refusal(tensor.as_numpy)
    again = pb_utils.Tensor.from_dlpack("B", tensor.to_dlpack())
    assert wire.Tensor("B", 14, [2], b"\xc0\x3f\x00\xc0") == packed(again)


@pytest.mark.parametrize("is_shared", [False, True])
def test_bfloat16_that_arrived_can_be_written_through_dlpack(is_shared: bool) -> None:
    data: Any = b"\xc0\x3f\x00\xc0"
    tensor = received_tensor(
        wire.Tensor("A", 14, [2], memoryview(bytearray(data)) if is_shared else data)
    )

    taken = dlpack.take(tensor)
    taken.array[0] = 0

    assert pb_utils.triton_to_numpy_type(taken.datatype) is None
    assert b"\0\0\x00\xc0" == bytes(packed(tensor).data)


@pytest.mark.row("A45")
def test_numpy_takes_a_tensor_as_it_is() -> None:
    array = NUMBERS.copy()

    taken: Any = np.from_dlpack(pb_utils.Tensor("A", array))

    assert np.shares_memory(array, taken)


def test_a_capsule_keeps_the_memory_that_it_was_made_of() -> None:
    class Array(np.ndarray):
        """One that can be watched."""

    array = NUMBERS.copy().view(Array)
    watched = weakref.ref(array)
    capsule = pb_utils.Tensor("A", array).to_dlpack()
    del array
    gc.collect()
    assert watched() is not None

    taken = pb_utils.Tensor.from_dlpack("B", capsule).as_numpy()
    del capsule
    assert watched() is not None
    del taken
    assert watched() is None


@pytest.mark.parametrize(
    "tensor",
    [
        *(pb_utils.Tensor("A", np.zeros((2, 2), dtype)) for dtype in ("f4", "?", "i8")),
        received_tensor(wire.Tensor("A", 14, [2], b"\xc0\x3f\x00\xc0")),
    ],
    ids=["f4", "?", "i8", "bfloat16"],
)
def test_a_capsule_is_a_reference_to_its_tensor_until_it_is_gone(tensor: Any) -> None:
    before = sys.getrefcount(tensor)

    capsule = tensor.to_dlpack()
    with_capsule = sys.getrefcount(tensor)
    taken = pb_utils.Tensor.from_dlpack("B", capsule)
    del capsule
    with_taken = sys.getrefcount(tensor)
    del taken

    assert (1, 1, 0) == (
        with_capsule - before,
        with_taken - before,
        sys.getrefcount(tensor) - before,
    )


def test_a_capsule_that_nobody_takes_lets_go_amid_an_exception() -> None:
    array = NUMBERS.copy()
    references = sys.getrefcount(array)

    def fail() -> None:
        raise KeyError(type(pb_utils.Tensor("A", array).to_dlpack()).__name__)

    with pytest.raises(KeyError, match="PyCapsule"):
        fail()

    gc.collect()
    assert references == sys.getrefcount(array)


def test_who_asks_for_a_copy_gets_one() -> None:
    tensor = pb_utils.Tensor("A", NUMBERS.copy())

    references = sys.getrefcount(tensor)
    taken = dlpack.take(tensor.__dlpack__(copy=True)).array  # lives beside the tensor

    assert not np.shares_memory(tensor.as_numpy(), taken)
    assert references == sys.getrefcount(tensor)
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize("array", [NUMBERS, np.zeros((0, 2), np.int8), np.array(7, np.uint16)])
def test_an_old_numpy_gives_a_copy_that_deletes_itself(array: Any) -> None:
    # what is used where numpy itself exports none that may be written
    taken = dlpack.take(dlpack._give_copy(array)).array

    assert (array.dtype, array.shape) == (taken.dtype, taken.shape)
    assert array.tolist() == taken.tolist()
    assert not np.shares_memory(array, taken)
