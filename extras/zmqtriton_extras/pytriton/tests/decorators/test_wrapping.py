"""A decorated callable answers for what it decorates; what is asked of a method, for its object."""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.pytriton.decorators import (
    TritonContext,
    batch,
    sample,
    set_triton_context,
    triton_context,
)
from zmqtriton_extras.pytriton.tests.bindings import bind, model, plain, request

ONE = [request(a=[[1]])]
SUM = [{"sum": [[1.0]]}]


class Methods:
    """Has one of each kind."""

    @batch
    def plain(self, a: np.ndarray) -> Any:
        """Say what it does."""
        return {"sum": a}

    @triton_context
    @batch
    def generator(self, a: np.ndarray, triton_context: Any) -> Iterator[Any]:
        yield {"sum": a}

    @triton_context
    async def coroutine(self, requests: Any, triton_context: Any) -> Any:
        return []

    @triton_context
    async def asynchronous_generator(
        self, requests: Any, triton_context: Any
    ) -> AsyncIterator[Any]:
        yield []

    @batch
    @staticmethod
    def static(a: np.ndarray) -> Any:
        return {"sum": a}

    @batch
    @classmethod
    def of_class(cls, a: np.ndarray) -> Any:
        return (a,)

    @sample
    def __call__(self, a: np.ndarray) -> Any:
        return {"sum": a}


@batch
def by_name(a: np.ndarray) -> Any:
    return {"sum": a}


@pytest.mark.parametrize(
    ("name", "is_kind"),
    [
        ("generator", inspect.isgeneratorfunction),
        ("coroutine", inspect.iscoroutinefunction),
        ("asynchronous_generator", inspect.isasyncgenfunction),
    ],
)
def test_the_kind_of_a_function_is_seen_through_its_decorators(name: str, is_kind: Any) -> None:
    methods = Methods()

    assert is_kind(getattr(methods, name))
    assert is_kind(getattr(Methods, name))
    assert not is_kind(methods.plain)
    assert not is_kind(methods.__call__)


def test_methods_have_their_object() -> None:
    methods = Methods()

    assert SUM == plain(methods.plain(ONE))
    assert SUM == plain(Methods.plain(methods, ONE))
    assert SUM == plain(methods(ONE))
    assert [SUM] == [plain(answer) for answer in bind(methods.generator)(ONE)]


def test_methods_of_the_class_and_of_nobody_work_too() -> None:
    bind(Methods.of_class, outputs=model().outputs[:1])  # type: ignore[index]
    try:
        assert SUM == plain(Methods.of_class(ONE))
        assert SUM == plain(Methods().of_class(ONE))
    finally:
        del Methods.__triton_context__  # type: ignore[attr-defined]
    assert SUM == plain(Methods.static(ONE))
    assert SUM == plain(Methods().static(ONE))


def test_all_sorts_of_callables_can_be_decorated() -> None:
    class Outputs:
        def infer(self, a: np.ndarray) -> Any:
            return (a,)

        def __call__(self, a: np.ndarray) -> Any:
            return {"sum": a}

    method = batch(Outputs().infer)

    assert SUM == plain(batch(Outputs())(ONE))
    assert SUM == plain(bind(method, outputs=model().outputs[:1])(ONE))  # type: ignore[index]
    assert [{"sum": [[2.0]]}] == plain(batch(functools.partial(scale, 2))(ONE))


def scale(factor: int, a: np.ndarray) -> Any:
    return {"sum": factor * a}


def test_its_attributes_are_those_of_the_callable() -> None:
    methods = Methods()

    assert inspect.ismethod(methods.plain)
    assert inspect.isfunction(Methods.static)
    assert methods is methods.generator.__self__
    assert ("plain", "Methods.plain", "Say what it does.", __name__) == tuple(
        getattr(methods.plain, f"__{name}__") for name in ("name", "qualname", "doc", "module")
    )
    assert "(a: 'np.ndarray') -> 'Any'" == str(inspect.signature(methods.plain))
    assert str(methods.plain).startswith("<bound method Methods.plain of ")


def test_attributes_that_it_gets_are_the_callables() -> None:
    def infer(a: np.ndarray) -> Any:
        return {"sum": a}

    decorated = triton_context(batch(infer))
    decorated.version = 3

    assert {"version": 3} == vars(infer) == vars(decorated)

    del decorated.version

    assert {} == vars(infer)


def test_the_same_method_is_equal_to_itself() -> None:
    methods = Methods()

    assert methods.plain == methods.plain
    assert 1 == len({methods.plain, methods.plain, methods.plain.__wrapped__})
    assert methods.plain != Methods().plain


def test_a_decorated_function_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(by_name)) is by_name


@pytest.mark.parametrize("count", [1, 2])
def test_a_server_binds_what_has_decorators_of_others_above(count: int) -> None:
    """PyTriton would not, since it sees the outermost only."""

    def timed(infer: Any) -> Any:
        @functools.wraps(infer)
        def call(requests: Any) -> Any:
            return infer(requests)

        return call

    infer = batch(lambda a: (a, a))
    for _ in range(count):
        infer = timed(infer)
    set_triton_context(TritonContext(), infer, model())

    assert [{"sum": [[1]], "count": [[1]]}] == plain(infer(ONE))


def test_a_server_binds_what_has_no_room_for_attributes() -> None:
    class Slots:
        __slots__ = ()

        def __call__(self, requests: Any) -> Any:
            return requests

    context = TritonContext()
    set_triton_context(context, Slots(), model())

    assert 1 == len(context.model_configs)
