"""Objects that a busy process would keep for long: only a collection of garbage would free them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


class Watched(bytearray):
    """Memory that can be watched, by a weak reference."""


@contextmanager
def freed_at_once(*kinds: type) -> Iterator[None]:
    """Expect objects of these classes, made within, to be gone at the end without a collection.

    Those of other tests do not count: some are garbage by now, some stay with what has failed.
    """
    gc.collect()
    others = {id(one): one for one in gc.get_objects() if type(one) in kinds}
    gc.disable()
    try:
        yield
        left = [one for one in gc.get_objects() if type(one) in kinds and id(one) not in others]
        assert [] == left
    finally:
        gc.enable()
