"""Requests to the kernel about this process, and its end."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
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


def _end_of(program: str, stdout: int = subprocess.PIPE) -> tuple[int, list[str]]:
    """Return the status and the lines of a program that runs its function `main`."""
    code = f"""
import atexit, sys, threading, time
from zmqtriton_floor import prctl
{textwrap.dedent(program)}
prctl.run_program(main)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=stdout,
        stderr=subprocess.STDOUT if stdout == subprocess.PIPE else subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""},
        text=True,
    )
    return done.returncode, f"{done.stdout or ''}{done.stderr or ''}".splitlines()


def test_a_program_ends_as_in_python_but_for_destructors() -> None:
    program = """
        class Kept:
            def __del__(self):
                print("destroyed")
        kept = Kept()
        has_written = threading.Event()
        def say():
            has_written.wait()
            time.sleep(0.05)
            print("thread")
        def main():
            atexit.register(print, "exit function")
            threading.Thread(target=say).start()
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
            sys.stdout.write("without a line's end. ")
            has_written.set()
            return 3
    """

    assert (3, ["without a line's end. thread", "exit function"]) == _end_of(program)


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("return None", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(300)", 300 & 0xFF, ""),
        ("sys.exit('a text')", 1, "a text"),
        ("raise ValueError('no')", 1, "ValueError: no"),
    ],
)
def test_the_status_of_a_program_is_that_of_python(end: str, status: int, said: str) -> None:
    ended, lines = _end_of(f"def main(): {end}")

    assert (status, said) == (ended, lines[-1] if lines else "")


def test_output_that_nobody_reads_is_told_as_by_python() -> None:
    read, write = os.pipe()
    os.close(read)

    status, lines = _end_of("def main(): print('unread')", stdout=write)

    os.close(write)
    assert 120 == status
    assert "BrokenPipeError: [Errno 32] Broken pipe" == lines[-1]
