"""Tensors: made of arrays, lists and DLPack; their memory, types and lives."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.host_gpu import HostGpu
from zmqtriton_extras.tritonserver.api import (
    DataType,
    DLDeviceType,
    InvalidArgumentError,
    MemoryBuffer,
    MemoryType,
    Tensor,
    UnsupportedError,
)
from zmqtriton_stub.api import dlpack
from zmqtriton_stub.memory import gpu


@pytest.mark.parametrize(
    ("dtype", "data_type"),
    [
        ("bool", DataType.BOOL),
        ("uint8", DataType.UINT8),
        ("uint16", DataType.UINT16),
        ("uint32", DataType.UINT32),
        ("uint64", DataType.UINT64),
        ("int8", DataType.INT8),
        ("int16", DataType.INT16),
        ("int32", DataType.INT32),
        ("int64", DataType.INT64),
        ("float16", DataType.FP16),
        ("float32", DataType.FP32),
        ("float64", DataType.FP64),
    ],
)
def test_an_array_keeps_its_type_and_its_memory(dtype: str, data_type: DataType) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)

    for tensor in (Tensor.from_object(array), Tensor.from_dlpack(array)):
        assert data_type is tensor.data_type
        assert [*tensor.shape] == [2, 3]
        assert (array.ctypes.data, array.nbytes) == (tensor.data_ptr, tensor.size)
        assert (tensor.memory_type, tensor.memory_type_id) == (MemoryType.CPU, 0)
        assert (DLDeviceType.kDLCPU, 0) == tensor.__dlpack_device__()
        again = np.from_dlpack(tensor)
        assert np.array_equal(array, again)
        assert array.dtype == again.dtype
        assert array.ctypes.data == again.ctypes.data


def test_lists_have_numpys_types() -> None:
    assert DataType.INT64 is Tensor.from_object([[1, 2]]).data_type
    assert DataType.FP64 is Tensor.from_object([1.5]).data_type
    assert DataType.BOOL is Tensor.from_object([True]).data_type
    assert DataType.FP32 is Tensor.from_object([np.float32(1)]).data_type
    assert DataType.BYTES is Tensor.from_object([["a"]]).data_type
    assert Tensor.from_object(np.float32(1)).shape == ()


@pytest.mark.parametrize(
    "given",
    [["kühl", "b"], np.array(["kühl", "b"]), np.array(["kühl".encode(), b"b"], object)],
    ids=["list", "texts", "objects"],
)
def test_texts_are_bytes_with_their_lengths(given: Any) -> None:
    tensor = Tensor.from_string_array(given)

    assert DataType.BYTES is tensor.data_type
    assert ["kühl".encode(), b"b"] == tensor.to_bytes_array().tolist()
    assert tensor.to_string_array().tolist() == ["kühl", "b"]
    assert bytes(tensor.to_memory()) == b"\x05\0\0\0k\xc3\xbchl\x01\0\0\0b"


@pytest.mark.row("J62")
def test_texts_keep_their_shape_and_may_be_none() -> None:
    assert Tensor.from_bytes_array([["a"], ["b"]]).to_string_array().tolist() == [["a"], ["b"]]
    assert Tensor.from_bytes_array(np.array([], np.str_)).to_string_array().shape == (0,)


def test_arrays_in_another_order_are_copied() -> None:
    given = np.arange(6).reshape(2, 3).T

    assert np.array_equal(given, np.from_dlpack(Tensor.from_object(given)))
    with pytest.raises(InvalidArgumentError, match="contiguous"):
        Tensor.from_dlpack(given)


def test_wrong_values_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="not supported"):
        Tensor.from_object({"a": 1})
    with pytest.raises(InvalidArgumentError, match="to tensor not supported"):
        Tensor.from_object([[1], [2, 3]])
    with pytest.raises(InvalidArgumentError, match="Unsupported Numpy data type"):
        Tensor.from_object(np.zeros(1, np.complex64))
    with pytest.raises(InvalidArgumentError, match="Unsupported conversion from"):
        Tensor.from_bytes_array([1])
    with pytest.raises(InvalidArgumentError, match=r"has data type .*INT64 not .*BYTES"):
        Tensor.from_object([1]).to_bytes_array()
    with pytest.raises(InvalidArgumentError, match="to DLPack data type"):
        np.from_dlpack(Tensor.from_object(["a"]))
    with pytest.raises(InvalidArgumentError, match="does not support DLpack"):
        MemoryBuffer.from_dlpack(object())


def test_bfloat16_is_known_by_dlpack_alone() -> None:
    halves = np.array([0x3F80, 0x4000], np.uint16)
    tensor = Tensor(DataType.BF16, [2], MemoryBuffer.from_dlpack(halves))

    again = Tensor.from_dlpack(tensor)

    assert (again.data_type, again.shape) == (DataType.BF16, [2])
    assert halves.ctypes.data == again.data_ptr


@pytest.mark.row("J62")
def test_memory_that_cannot_be_written_to_is_not_given_as_if_it_could() -> None:
    array = np.arange(4.0)
    array.flags.writeable = False
    tensor = Tensor.from_object(array)

    capsule = tensor.__dlpack__()  # of a consumer that knows no flags
    assert not np.from_dlpack(tensor).flags.writeable
    assert array.tolist() == np.from_dlpack(tensor).tolist()

    class _Again:
        def __dlpack__(self, **options: Any) -> Any:
            return capsule

        def __dlpack_device__(self) -> Any:
            return tensor.__dlpack_device__()

    assert array.ctypes.data != MemoryBuffer.from_dlpack(_Again()).data_ptr


@pytest.mark.row("J62")
def test_a_tensor_lives_as_long_as_the_arrays_over_it() -> None:
    owner = np.ones(1 << 10)
    of_owner, kept = sys.getrefcount(owner), weakref.ref(owner)
    tensor = Tensor.from_dlpack(owner)
    assert of_owner + 1 == sys.getrefcount(owner)

    of_tensor = sys.getrefcount(tensor)
    array = np.from_dlpack(tensor)
    assert of_tensor + 1 == sys.getrefcount(tensor)
    tensor.shape = [2, 1 << 9]
    assert array.shape == (1 << 10,)
    other = np.from_dlpack(tensor)
    assert other.shape == (2, 1 << 9)

    del tensor, owner
    assert array[-1] == 1
    del array, other
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize(
    "place", ["cpu", "CPU:0", MemoryType.CPU, (MemoryType.CPU, 0), (DLDeviceType.kDLCPU, 0)]
)
def test_a_tensor_of_the_host_is_there_already(place: Any) -> None:
    tensor = Tensor.from_object([1])

    assert tensor is tensor.to_device(place)
    assert tensor is tensor.to_host()


@pytest.mark.parametrize("place", ["disk", "cpu:0:0", "cpu:x", "cpu:", (3, 0), ("cpu", 0), None])
def test_a_place_that_is_none_is_refused(place: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="Invalid memory type"):
        Tensor.from_object([1]).to_device(place)


def test_a_gpu_needs_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(gpu, "_driver", None)
    monkeypatch.setattr(gpu, "_why_not", "")

    with pytest.raises(UnsupportedError, match=r"Conversion from .*CPU.*GPU"):
        Tensor.from_object([1]).to_device("gpu:1")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[HostGpu]:
    driver = HostGpu(tmp_path)
    gpu.use(driver)
    yield driver
    gc.collect()
    gpu.use(None)


@pytest.mark.row("J62")
def test_a_tensor_goes_to_a_gpu_to_another_and_back(driver: HostGpu) -> None:
    array = np.arange(6).reshape(2, 3)

    there = Tensor.from_object(array).to_device("gpu:1")
    other = there.to_device((DLDeviceType.kDLCUDA, 0))
    back = other.to_host()

    assert (MemoryType.GPU, 1, array.nbytes) == (
        there.memory_type,
        there.memory_type_id,
        there.size,
    )
    assert [(DLDeviceType.kDLCUDA, 1), (DLDeviceType.kDLCUDA, 0)] == [
        tensor.__dlpack_device__() for tensor in (there, other)
    ]
    assert {there.data_ptr, other.data_ptr} == driver.allocated.keys()
    assert np.array_equal(array, np.from_dlpack(back))
    assert there is there.to_device("gpu:1")
    assert Tensor.from_object(np.empty(0)).to_device("gpu").size == 0
    del there, other
    gc.collect()
    assert driver.allocated == {}


@pytest.mark.parametrize("data_type", [DataType.UINT16, DataType.BF16, DataType.FP16])
def test_a_tensor_on_a_gpu_is_given_without_a_copy(driver: HostGpu, data_type: DataType) -> None:
    buffer = MemoryBuffer.from_dlpack(np.array([0x3F80, 0x4000], np.uint16))
    there = Tensor(data_type, [1, 2], buffer).to_device("gpu")

    again = Tensor.from_dlpack(there)

    assert (data_type, [1, 2], there.data_ptr) == (again.data_type, again.shape, again.data_ptr)
    assert bytes(there.to_memory()) == bytes(again.to_memory()) == b"\x80\x3f\x00\x40"
    capsule = there.__dlpack__(copy=True)
    assert there.data_ptr != dlpack.take(capsule).array.address
