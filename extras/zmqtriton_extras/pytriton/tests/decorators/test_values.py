"""`fill_optionals` and `first_value`, as in PyTriton 0.7.0 but where it says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.pytriton.decorators import batch, fill_optionals, first_value, triton_context
from zmqtriton_extras.pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError
from zmqtriton_extras.pytriton.model_config.triton_model_config import TensorSpec
from zmqtriton_extras.pytriton.proxy.types import Request
from zmqtriton_extras.pytriton.tests.bindings import array, bind, plain, request


def filled(requests: Any, *, model: dict[str, Any], **defaults: Any) -> Any:
    infer = fill_optionals(**defaults)(lambda requests: requests)
    return plain(bind(infer, **model)(requests))


class TestFillOptionals:
    @pytest.mark.row("J25")
    def test_inputs_that_are_missing_get_the_default_in_each_row(self) -> None:
        model = {"inputs": [TensorSpec("a", (1,), np.float32), TensorSpec("b", (-1,), object)]}
        requests = [request(a=[[1], [2]]), request(a=[[3]], b=[[b"own"]])]

        responses = filled(requests, model=model, b=np.array([b"x", b"y"], object))

        assert [
            {"a": [[1], [2]], "b": [[b"x", b"y"], [b"x", b"y"]]},
            {"a": [[3]], "b": [[b"own"]]},
        ] == responses

    @pytest.mark.row("J25")
    def test_inputs_of_a_model_that_does_not_batch_get_the_default_itself(self) -> None:
        model = {"batching": False}

        assert [{"b": [b"x"], "a": [1]}] == filled([request(b=[b"x"])], model=model, a=array([1]))

    @pytest.mark.row("J25")
    @pytest.mark.parametrize("dtype", [object, bytes, np.bytes_])
    @pytest.mark.parametrize("own", [object, np.bytes_])
    def test_byte_strings_fit_into_each_other(self, dtype: Any, own: Any) -> None:
        """PyTriton refuses all but objects in place of objects."""
        model = {"inputs": [TensorSpec("b", (1,), dtype)]}

        responses = filled([request(a=[[1]])], model=model, b=np.array([b"xyz"], own))

        assert [{"a": [[1]], "b": [[b"xyz"]]}] == responses

    @pytest.mark.row("J25")
    @pytest.mark.parametrize(
        ("defaults", "text"),
        [
            ({"z": array([1]), "y": array([1])}, "Could not found y, z inputs"),
            (
                {"a": [1], "b": 3},
                "Could not use a=[1], b=3 defaults as they are not NumPy arrays",
            ),
            (
                {"a": np.array([1.0])},
                "Could not use a: dtype=float64 expected_dtype=<class 'numpy.float32'> defaults "
                "as they have different than input signature dtypes",
            ),
            (
                {"a": array([1, 2])},
                "Could not use a: shape=(2,) expected_shape=(1,) defaults "
                "as they have different than input signature shapes",
            ),
            (
                {"a": array(1)},
                "Could not use a: shape=() expected_shape=(1,) defaults "
                "as they have different than input signature shapes",
            ),
        ],
    )
    def test_defaults_that_do_not_fit_are_refused(self, defaults: Any, text: str) -> None:
        with pytest.raises(PyTritonBadParameterError) as caught:
            filled([request(b=[[b"x"]])], model={}, **defaults)

        assert text == str(caught.value)


def first_of(values: np.ndarray, **options: Any) -> Any:
    seen = []

    @batch
    @first_value("k", **options)
    def infer(a: np.ndarray, k: Any) -> Any:
        seen.append(k)
        return {"sum": a}

    bind(infer)([Request({"a": array([[0]] * len(values)), "k": values})])
    return seen[0]


class TestFirstValue:
    @pytest.mark.row("J22")
    @pytest.mark.parametrize(
        ("values", "expected", "kind"),
        [
            (array([[1], [1]]), 1, np.float32),
            (array([[[1]], [[1]]]), 1, np.float32),
            (array([1, 1]), 1, np.float32),
            (np.array([[b"x"], [b"x"]], object), b"x", bytes),
            (np.array([b"x", b"x"], object), b"x", bytes),
            (np.array([[b"x"], [b"x"]]), b"x", np.bytes_),
            (array([[1, 2], [1, 2]]), [1, 2], np.ndarray),
        ],
    )
    def test_a_row_of_one_value_becomes_a_scalar(
        self, values: np.ndarray, expected: Any, kind: type
    ) -> None:
        first = first_of(values)

        assert expected == plain(first)
        assert type(first) is kind

    @pytest.mark.row("J22")
    def test_a_row_stays_one_if_it_shall(self) -> None:
        assert [1] == plain(first_of(array([[1], [1]]), squeeze_single_values=False))

    @pytest.mark.row("J22")
    def test_rows_that_differ_are_refused(self) -> None:
        values = array([[1], [2]])

        with pytest.raises(PyTritonRuntimeError) as caught:
            first_of(values)

        assert (
            "The values on the 'k' input are not equal. To proceed, either disable strict mode in "
            "@first_value wrapper or ensure that the values always are consistent. The current "
            f"values of 'k' are {values!r}."
        ) == str(caught.value)
        assert 1 == first_of(values, strict=False)

    def test_rows_of_several_strings_are_compared_as_rows(self) -> None:
        """PyTriton wants all strings to be equal."""
        assert [b"x", b"y"] == plain(first_of(np.array([[b"x", b"y"], [b"x", b"y"]], object)))

    @pytest.mark.row("J22")
    def test_requests_have_a_first_value_each(self) -> None:
        infer = bind(first_value("a", "other")(lambda requests: requests))

        assert [{"a": 1}, {"a": 2}] == plain(infer([request(a=[[1], [1]]), request(a=[[2]])]))

    def test_the_context_is_no_input(self) -> None:
        """PyTriton takes it for one, and leaves the requests as they are."""

        @triton_context
        @first_value("a")
        def infer(requests: Any, triton_context: Any) -> Any:
            return requests

        assert [{"a": 1}] == plain(bind(infer)([request(a=[[1], [1]])]))

    @pytest.mark.row("J22")
    def test_models_that_do_not_batch_are_refused(self) -> None:
        infer = bind(first_value("a")(lambda requests: requests), batching=False)

        with pytest.raises(PyTritonRuntimeError) as caught:
            infer([request(a=[1])])

        assert (
            "The @first_value decorator can only be used with models that support batching."
        ) == str(caught.value)

    @pytest.mark.row("J22")
    def test_the_context_cannot_be_chosen(self) -> None:
        with pytest.raises(PyTritonBadParameterError) as caught:
            first_value("a", "__triton_context__")

        assert (
            "The keys __triton_context__ are not allowed as keys for @first_value wrapper. "
            "The set of not allowed keys are __triton_context__"
        ) == str(caught.value)
