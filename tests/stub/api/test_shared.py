"""Values that instances of one process share by name."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from zmqtriton_stub.api import shared as module
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.api.pb_utils import shared


@pytest.fixture(autouse=True)
def nothing_is_shared() -> Iterator[None]:
    module._named.clear()
    yield
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
    with pytest.raises(TritonModelException, match=r"shared\('a'\) is called while it is being"):
        shared("a", lambda: shared("a", lambda: 1))


def test_a_name_is_text() -> None:
    with pytest.raises(TypeError, match="takes a name"):
        shared(1, lambda: 1)  # type: ignore[arg-type]


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

    assert 0 == status
    assert 1 == shared("slow", lambda: 3)
