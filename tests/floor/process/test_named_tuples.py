"""NamedTuples that write their constructor late: they are as those of Python."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any

import pytest

from zmqtriton_floor.process import named_tuples


class Late(named_tuples.NamedTuple):
    """A place."""

    x: int
    y: int = 2

    @property
    def total(self) -> int:
        return self.x + self.y


class Early(typing.NamedTuple):
    """A place."""

    x: int
    y: int = 2

    @property
    def total(self) -> int:
        return self.x + self.y


class Empty(named_tuples.NamedTuple):
    """One without fields."""


def test_instances_are_as_those_of_python() -> None:
    late = Late(1)

    assert (1, 2) == late
    assert repr(Early(1)).replace("Early", "Late") == repr(late)
    assert (1, 2, 3) == (late.x, late.y, late.total)
    assert Late(5, 6) == Late(y=6, x=5) == late._replace(x=5, y=6) == Late._make([5, 6])
    assert {"x": 1, "y": 2} == late._asdict()
    assert late == pickle.loads(pickle.dumps(late)) == copy.deepcopy(late)
    assert type(late) is type(copy.copy(late)) is Late
    assert () == Empty()
    assert not hasattr(late, "__dict__")


def test_classes_are_as_those_of_python() -> None:
    for name in ("_fields", "_field_defaults", "__match_args__", "__doc__", "__bases__"):
        assert getattr(Early, name) == getattr(Late, name)
    assert typing.get_type_hints(Early) == typing.get_type_hints(Late)
    assert {} == vars(Empty)["__annotations__"]
    assert type(Late) is type


@pytest.mark.parametrize(
    "make",
    [
        lambda of: of(),
        lambda of: of(1, 2, 3),
        lambda of: of(1, z=3),
        lambda of: of._make([1]),
        lambda of: of(1)._replace(z=3),
    ],
)
def test_wrong_values_are_refused_as_by_python(make: Any) -> None:
    errors = []
    for of in (Early, Late):
        with pytest.raises((TypeError, ValueError)) as raised:
            make(of)
        errors.append((raised.type, str(raised.value).replace("Early", "Late")))

    assert errors[0] == errors[1]


def test_a_default_comes_last() -> None:
    with pytest.raises(TypeError, match="field without a default"):

        class _Wrong(named_tuples.NamedTuple):
            x: int = 1
            y: int  # type: ignore[misc]
