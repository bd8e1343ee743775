"""The context that a server gives callables, and how they are found in it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.pytriton.decorators import (
    ModelConfigDict,
    TritonContext,
    batch,
    get_model_config,
    get_triton_context,
    sample,
    triton_context,
)
from zmqtriton_extras.pytriton.exceptions import PyTritonValidationError
from zmqtriton_extras.pytriton.tests.bindings import bind, model, plain, request


class Models:
    """Three callables of one object."""

    @triton_context
    @sample
    def __call__(self, a: np.ndarray, triton_context: TritonContext) -> Any:
        return {
            "names": [triton_context.model_configs[key].model_name for key in (self, self.first)]
        }

    @triton_context
    @batch
    def first(self, a: np.ndarray, triton_context: TritonContext) -> Any:
        assert triton_context.model_configs[self.first] is get_model_config(self.first, self)
        return (a,)

    @batch
    def second(self, a: np.ndarray) -> Any:
        return a, a


@pytest.mark.row("J27")
def test_a_function_gets_its_context() -> None:
    @triton_context
    def infer(requests: Any, triton_context: TritonContext) -> Any:
        return triton_context.model_configs[infer].model_name

    assert "mine" == bind(infer, model_name="mine")([])


@pytest.mark.row("J27")
def test_a_callable_without_a_model_is_told_so() -> None:
    infer = batch(lambda a: (a,))

    with pytest.raises(PyTritonValidationError) as caught:
        infer([request(a=[[1]])])

    assert ("Wrapped function or object must bound with triton to get  __triton_context__") == str(
        caught.value
    )


@pytest.mark.row("J27")
def test_methods_and_their_object_are_models_of_their_own() -> None:
    models = Models()
    context = TritonContext()
    for infer, name in ((models, "object"), (models.first, "first"), (models.second, "second")):
        outputs = model().outputs or []
        context.model_configs[infer] = model(
            model_name=name, outputs=outputs[: 1 if name == "first" else 2]
        )
        getattr(infer, "__self__", infer).__triton_context__ = context  # type: ignore[union-attr]

    assert [{"names": ["object", "first"]}] == models([request(a=[1])])
    assert [{"sum": [[1]]}] == plain(models.first([request(a=[[1]])]))
    assert [{"sum": [[1]], "count": [[1]]}] == plain(models.second([request(a=[[1]])]))


@pytest.mark.row("J27")
def test_two_objects_that_look_alike_are_two_models() -> None:
    """PyTriton tells them apart by their text."""

    class Same(Models):
        def __repr__(self) -> str:
            return "same"

    one, two = Same(), Same()
    configs = ModelConfigDict()
    configs[one], configs[two] = model(model_name="one"), model(model_name="two")

    assert ["one", "two"] == [configs[key].model_name for key in (one.__call__, two.__call__)]


def test_configurations_are_a_mapping_by_callable() -> None:
    """PyTriton still lists callables that were deleted."""
    models = Models()
    configs = ModelConfigDict()
    configs[models], configs[models.first] = model(model_name="object"), model()

    assert [models, models.first] == list(configs)
    assert models in configs
    assert models.second not in configs
    assert "object" == configs[models.__call__].model_name

    del configs[models]

    assert [models.first] == list(configs)
    assert 1 == len(configs)
    with pytest.raises(KeyError, match="Models object at"):
        configs[models]


def test_decorators_of_the_users_own_find_the_model() -> None:
    def named(infer: Any) -> Any:
        @functools.wraps(infer)
        def call(requests: Any) -> Any:
            return get_model_config(infer, None).model_name, infer(requests)

        return call

    infer = batch(lambda a: {"sum": a})
    bind(infer, model_name="mine")

    assert ("mine", [{"sum": [[1]]}]) == plain_pair(named(infer)([request(a=[[1]])]))
    assert get_triton_context(infer, None) is infer.__triton_context__


def plain_pair(pair: Any) -> Any:
    return pair[0], plain(pair[1])
