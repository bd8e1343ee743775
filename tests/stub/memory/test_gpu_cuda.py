"""The driver over a real GPU: cupy, CUDA, and another process. Skipped where there is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from zmqtriton_floor.errors import Unavailable
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.memory import gpu

pytestmark = pytest.mark.gpu

ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

#: Prints the handle of memory that holds 1000 times the byte 7, until its input ends.
_OWNER = """
import sys
from zmqtriton_stub.memory.gpu_cuda import Cuda
cuda = Cuda()
address = cuda.allocate(0, 2 << 20)
cuda.from_host(0, address, bytes([7]) * 1000)
print(cuda.export(0, address).hex(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


@pytest.fixture
def cuda(cupy: Any) -> Iterator[Any]:
    from zmqtriton_stub.memory.gpu_cuda import Cuda

    try:
        gpu.use(Cuda())
    except Unavailable as error:
        pytest.skip(error.text)

    yield gpu.driver()

    gpu.use(None)


@pytest.mark.row("A45", "A46")
def test_cupy_gives_a_tensor_and_takes_it_back(cuda: Any, cupy: Any) -> None:
    with cupy.cuda.Stream(non_blocking=True):
        array = cupy.asarray(ARRAY) * 2  # may still be under way

    tensor = pb_utils.Tensor.from_dlpack("A", array)
    again = cupy.from_dlpack(tensor)

    assert (False, (2, 0)) == (tensor.is_cpu(), tensor.__dlpack_device__())
    assert np.array_equal(ARRAY * 2, cupy.asnumpy(again))
    assert array.data.ptr == again.data.ptr


@pytest.mark.row("A45", "A46", "A47")
def test_torch_gives_a_tensor_and_takes_it_back(cuda: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("a torch without CUDA")
    source = torch.arange(8, device="cuda").to(torch.bfloat16)

    tensor = pb_utils.Tensor.from_dlpack("A", source)
    again = torch.from_dlpack(tensor)

    assert 14 == tensor.triton_dtype()
    assert torch.bfloat16 == again.dtype
    assert source.tolist() == again.tolist()
    assert source.data_ptr() == again.data_ptr()


def test_bytes_go_to_the_gpu_and_come_back(cuda: Any) -> None:
    span = gpu.uploaded(0, ARRAY.tobytes())

    copy = gpu.copied(span, 0)

    assert ARRAY.tobytes() == bytes(gpu.downloaded(copy))
    assert span.address != copy.address


def test_another_process_opens_what_is_allocated(cuda: Any) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        number, address, size = cuda.open(bytes.fromhex(owner.stdout.readline()))
        data = bytes(gpu.downloaded(gpu.DeviceSpan(number, address, 1000, None)))
        cuda.close(number, address)
        owner.communicate(timeout=60)

    assert (0, bytes([7]) * 1000, 2 << 20) == (number, data, size)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65])
def test_a_handle_that_is_none_is_an_error_and_no_more(cuda: Any, length: int) -> None:
    span = gpu.uploaded(0, ARRAY.tobytes())
    for handle in (
        cuda.export(0, span.address).partition(b"\0")[0] + b"\0" + b"\x5a" * length,
        b"\x5a" * length,
        b"ffff:ff:ff.0\0" + bytes(64),
    ):
        with pytest.raises(Unavailable):
            cuda.open(handle)

    assert ARRAY.tobytes() == bytes(gpu.downloaded(span))
