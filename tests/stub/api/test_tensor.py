"""Tensors of models, and what instances share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.support.refusals import refusal
from zmqtriton_floor import wire
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.api import shared as module
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.api.pb_utils import shared
from zmqtriton_stub.api.tensor import packed, received_tensor

# ------------------------------------------------------------------------------ tensor


def test_a_tensor_tells_name_shape_and_datatype_by_methods() -> None:
    tensor = pb_utils.Tensor("IN", np.zeros((2, 3), np.float32))

    assert (tensor.name(), tensor.shape(), tensor.triton_dtype()) == ("IN", [2, 3], 11)
    assert tensor.is_cpu()


def test_an_empty_name_is_refused() -> None:
    assert (
        refusal(pb_utils.TritonModelException, lambda: pb_utils.Tensor("", np.zeros(1)))
        == "Tensor name cannot be an empty string."
    )


@pytest.mark.parametrize("dtype", ["U4", "datetime64[s]", "complex64", ">f4"])
def test_a_dtype_that_the_protocol_lacks_is_refused(dtype: str) -> None:
    assert (
        refusal(pb_utils.TritonModelException, lambda: pb_utils.Tensor("IN", np.zeros(1, dtype)))
        == "NumPy dtype is not supported."
    )


@pytest.mark.parametrize("array", [[1, 2], 3.0, np.float32(1), None])
@pytest.mark.parametrize("name", ["IN", ""])
def test_only_arrays_make_tensors(name: str, array: Any) -> None:
    with pytest.raises(TypeError, match="NumPy array"):
        pb_utils.Tensor(name, array)


def test_an_array_in_another_order_is_sent_in_c_order() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T

    row = packed(pb_utils.Tensor("OUT", array))

    assert row == wire.Tensor("OUT", 8, [3, 2], np.ascontiguousarray(array).tobytes())


def test_a_scalar_array_keeps_its_empty_shape() -> None:
    assert packed(pb_utils.Tensor("OUT", np.array(7, np.uint8))).shape == []


def test_a_received_tensor_can_be_written_into_and_stays_the_same_array() -> None:
    tensor = received_tensor(wire.Tensor("IN", 8, [2], np.array([1, 2], np.int32).tobytes()))

    tensor.as_numpy()[0] = 9

    assert tensor.as_numpy().tolist() == [9, 2]
    assert packed(tensor).data == np.array([9, 2], np.int32).tobytes()


def test_what_a_model_passes_on_unseen_keeps_its_bytes() -> None:
    row = wire.Tensor("IN", 14, [2], b"\x01\x02\x03\x04")

    assert packed(received_tensor(row)) == row


def test_bf16_has_no_numpy_array() -> None:
    with pytest.raises(pb_utils.TritonModelException, match="BF16"):
        received_tensor(wire.Tensor("IN", 14, [1], b"\x80?")).as_numpy()


def test_strings_arrive_as_bytes_and_leave_as_bytes_or_text() -> None:
    arrived = received_tensor(wire.Tensor("IN", 13, [2, 1], b"\x01\0\0\0a\x02\0\0\0\xff\0"))
    made = pb_utils.Tensor("OUT", np.array([[b"a"], [5]], np.object_))
    fixed = pb_utils.Tensor("OUT", np.array([b"ab", b"c"]))

    assert arrived.as_numpy().tolist() == [[b"a"], [b"\xff\0"]]
    assert packed(made) == wire.Tensor("OUT", 13, [2, 1], b"\x01\0\0\0a\x01\0\0\x005")
    assert packed(fixed).data == b"\x02\0\0\0ab\x01\0\0\0c"


@pytest.mark.parametrize(("datatype", "dtype"), [(11, np.float32), (13, np.object_)])
def test_tensors_without_elements_are_legal_both_ways(datatype: int, dtype: Any) -> None:
    assert received_tensor(wire.Tensor("IN", datatype, [0, 3], b"")).as_numpy().shape == (0, 3)
    assert packed(pb_utils.Tensor("OUT", np.empty((0, 3), dtype))).data == b""


def test_dlpack_of_a_read_only_array_gives_a_copy() -> None:
    source = np.arange(3)
    source.flags.writeable = False

    taken: Any = np.from_dlpack(pb_utils.Tensor("A", source))

    assert ([0, 1, 2], False) == (taken.tolist(), np.shares_memory(source, taken))


def test_dlpack_refuses_strings_and_what_has_no_dlpack() -> None:
    assert (
        refusal(
            pb_utils.TritonModelException,
            lambda: pb_utils.Tensor("A", np.array([b"x"], np.object_)).to_dlpack(),
        )
        == "DLPack does not have support for string tensors."
    )

    with pytest.raises(pb_utils.TritonModelException, match="Provided tensor is not supported"):
        pb_utils.Tensor.from_dlpack("A", "no tensor")


# ------------------------------------------------------------------------------ shared
# Values that instances of one process share by name.


@pytest.fixture(autouse=True)
def nothing_is_shared() -> Iterator[None]:
    # names are remembered for the life of a process
    module._named.clear()
    yield
    # names are remembered for the life of a process
    module._named.clear()


def test_it_is_made_once_however_many_threads_ask_for_it() -> None:
    made: list[object] = []

    def make() -> object:
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    with ThreadPoolExecutor(8) as pool:
        got = set(pool.map(lambda _: shared("weights", make), range(8)))

    assert got == set(made)
    assert 1 == len(made)


def test_each_name_has_its_own_and_none_is_a_value() -> None:
    assert shared("a", lambda: None) is None
    assert shared("a", lambda: 1) is None
    assert 2 == shared("b", lambda: 2)


def test_one_that_could_not_be_made_is_made_by_the_next() -> None:
    with pytest.raises(ZeroDivisionError):
        shared("a", lambda: 1 / 0)

    assert 3 == shared("a", lambda: 3)


def test_one_may_need_another_but_not_itself() -> None:
    assert 3 == shared("outer", lambda: shared("inner", lambda: 1) + 2)
    with pytest.raises(TritonModelException, match=r"shared\('a'\) is called by its own"):
        shared("a", lambda: shared("a", lambda: 1))


def test_a_name_is_text() -> None:
    with pytest.raises(TypeError, match="takes a name"):
        shared(1, lambda: 1)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_fork_makes_what_another_thread_was_making() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def make() -> int:
        begun.set()
        may_end.wait(60)
        return 1

    maker = threading.Thread(target=lambda: shared("slow", make))
    maker.start()
    begun.wait(60)
    shared("quick", lambda: 5)
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if (shared("slow", lambda: 2), shared("quick", lambda: 0)) == (2, 5) else 2
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    may_end.set()
    maker.join()

    assert (0, 1) == (status, shared("slow", lambda: 3))
