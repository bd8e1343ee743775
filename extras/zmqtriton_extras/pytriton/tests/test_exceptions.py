"""The errors of the package are one family."""

from __future__ import annotations

import pickle

import pytest

from zmqtriton_extras.pytriton import exceptions
from zmqtriton_extras.pytriton.exceptions import PyTritonError


@pytest.mark.row("J10")
@pytest.mark.parametrize(
    "name",
    "Validation InvalidOperation BadParameter ModelConfig Unrecoverable Runtime".split(),
)
def test_an_error_has_a_message_and_is_one_of_the_family(name: str) -> None:
    kind = getattr(exceptions, f"PyTriton{name}Error")

    error = kind("what is wrong")

    assert isinstance(error, PyTritonError)
    assert ("what is wrong", "what is wrong") == (error.message, str(error))
    copy = pickle.loads(pickle.dumps(error))
    assert (kind, "what is wrong") == (type(copy), copy.message)


@pytest.mark.row("J10")
def test_an_error_without_a_message_is_none() -> None:
    with pytest.raises(TypeError):
        PyTritonError()  # type: ignore[call-arg]
