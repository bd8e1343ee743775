"""Requests to the kernel about this process."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import pytest

from zmqtriton_floor import prctl


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("stub resnet", "stub resnet"),
        ("stub of_a_long_name", "stub of_a_long_"),
        ("stub 名前のモデル", "stub 名前の"),
    ],
)
def test_a_long_name_is_cut_and_no_letter_with_it(name: str, kept: str) -> None:
    names = []

    def look() -> None:
        prctl.set_name(name)  # of this thread, which ends
        names.append(Path("/proc/thread-self/comm").read_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert [f"{kept}\n".encode()] == names


def test_the_kernel_adds_nothing_to_the_waits_of_a_thread() -> None:
    get_timer_slack = 30
    slacks = []

    def look() -> None:
        libc = ctypes.CDLL(None)
        slacks.append(libc.prctl(get_timer_slack, 0, 0, 0, 0))
        prctl.wake_in_time()
        slacks.append(libc.prctl(get_timer_slack, 0, 0, 0, 0))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert 1 == slacks[1] < slacks[0]
