"""The output of a model, which is to be like any other one but for the ids of requests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest

from zmqtriton_stub.api import callers
from zmqtriton_stub.output import AttributedOutput, attribute


@contextmanager
def serving(*ids: str) -> Iterator[None]:
    requests: Any = [SimpleNamespace(request_id=one, work=SimpleNamespace(flags=0)) for one in ids]
    token = callers.served.set(requests)
    yield
    callers.served.reset(token)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[TextIO]:
    with (tmp_path / "output").open("w", encoding="utf-8") as stream:
        yield stream


def test_each_line_begins_with_the_ids_and_once(stream: TextIO, tmp_path: Path) -> None:
    with AttributedOutput(stream) as output:  # type: ignore[arg-type]
        output.write("of nobody, ")
        with serving("a", "b"):
            output.write("yet.\nfirst\n\nsecond")
            output.write(" goes on\n")

    lines = (tmp_path / "output").read_text("utf-8").splitlines()
    about = "[request ids: a, b] "
    assert ["of nobody, yet.", f"{about}first", "", f"{about}second goes on"] == lines


@pytest.mark.parametrize("value", [5, b"bytes", None])
def test_what_is_no_text_is_refused_in_pythons_words(stream: TextIO, value: Any) -> None:
    with pytest.raises(TypeError) as of_stream:
        stream.write(value)

    output = AttributedOutput(stream)  # type: ignore[arg-type]
    with output, serving("a"), pytest.raises(TypeError) as of_output:
        output.write(value)

    assert str(of_stream.value) == str(of_output.value)


def test_it_has_the_name_of_its_stream(stream: TextIO) -> None:
    with AttributedOutput(stream) as output:  # type: ignore[arg-type]
        assert (stream.name, stream.mode) == (output.name, output.mode)


def test_a_stream_is_attributed_once(stream: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)

    attribute()
    first = sys.stdout
    attribute()

    assert isinstance(first, AttributedOutput)
    assert first is sys.stdout
