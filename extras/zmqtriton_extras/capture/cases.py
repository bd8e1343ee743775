"""Captured requests as cases of a unit test, and the test that `zmqtriton new test` writes."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from zmqtriton.sdk.process import InferenceRequest
from zmqtriton.sdk.wire import NotFound, ZmqTritonError, errors
from zmqtriton_extras.capture.comparison import DIFFERENT, compare
from zmqtriton_extras.capture.records import LINES, Record, read

_COUNT = 20
_TEXT = '''\
"""Captured requests to {model}, answered again: pytest {file}"""

from pathlib import Path

import pytest
from zmqtriton.testing import captured, load_model

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def model():
    with load_model(HERE / {directory} / "{model}") as model:
        yield model


@pytest.mark.parametrize("case", captured(HERE / "{cases}"), ids=lambda case: case.id)
def test_a_captured_request_is_answered_as_it_was(model, case):
    case.check(model, tolerance=1e-6)
'''


class Model(Protocol):
    """A model of `zmqtriton.testing`."""

    def stream(self, request: InferenceRequest, /) -> Iterator[dict[str, Any]]: ...


class Case:
    """One captured request and its responses."""

    def __init__(self, record: Record) -> None:
        self._record = record

    @property
    def id(self) -> str:
        return self._record.id

    def __repr__(self) -> str:
        return f"Case({self.id!r})"

    def request(self) -> InferenceRequest:
        """Return the request, with inputs as numpy arrays."""
        document = self._record.document["request"]
        return InferenceRequest(
            {entry["name"]: self._record.array(entry) for entry in document["inputs"]},
            request_id=document.get("id", ""),
            outputs=[output["name"] for output in document.get("outputs", ())],
            parameters=document.get("parameters", {}),
        )

    def check(self, model: Model, *, tolerance: float = 0.0) -> None:
        """Raise AssertionError, with the tensors, if a model's responses differ from captured ones.

        Numbers may differ by the tolerance, which is absolute near 0 and relative elsewhere.
        """
        error = self._record.document["error"]
        try:
            responses = [*model.stream(self.request())]
        except ZmqTritonError as refused:
            if error is not None and error["code"] == refused.code:
                return
            raise
        if error is not None:
            raise AssertionError(f"it succeeds; captured was {error['code']}: {error['text']}")
        verdict = compare(self._record, responses, tolerance)
        if verdict.kind == DIFFERENT:
            lines = (f"'{tensor}' {text}" for tensor, text, _ in verdict.differences)
            raise AssertionError("; ".join(lines))


def captured(directory: str | Path) -> list[Case]:
    """Return the requests of a directory of captures as cases of a test."""
    return [Case(record) for record in read(Path(directory))]


def run_new_test(words: list[str]) -> int:
    """Write the test and its cases; return the exit status. Nothing is overwritten."""
    arguments = _parser().parse_args(words)
    try:
        records = _choose(arguments.source, arguments.model, arguments.count)
        path = _write(arguments, records)
    except (ZmqTritonError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{len(records)} cases. Try: pytest {path}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zmqtriton new test",
        description="Write a unit test of a model from captured requests. Requests of sequences "
        "are left out, and those with inputs that were not captured.",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="CAPTURES",
        help="directory of a server with --capture",
    )
    parser.add_argument("--model", required=True, metavar="MODEL", help="name of the model")
    parser.add_argument(
        "--directory",
        "-d",
        default="models",
        metavar="DIRECTORY",
        help="directory of the models (default: models)",
    )
    parser.add_argument(
        "--count",
        type=int,
        default=_COUNT,
        metavar="N",
        help=f"the newest N requests (default: {_COUNT})",
    )
    return parser


def _choose(directory: Path, model: str, count: int) -> list[Record]:
    """Return the newest records that a test can send alone. Raises NotFound without any."""
    records = [one for one in read(directory) if one.model == model and _can_be_sent(one)]
    if not records:
        raise NotFound(f"'{directory}' has no requests to '{model}' for a test; capture some first")
    return records[-count:]


def _can_be_sent(record: Record) -> bool:
    error = record.document["error"]
    has_left = error is not None and error["code"] == errors.Cancelled.code
    is_alone = "sequence_id" not in record.document["request"].get("parameters", {})
    return record.is_whole and is_alone and not has_left


def _write(arguments: argparse.Namespace, records: list[Record]) -> Path:
    stem = arguments.model.replace("-", "_")
    path, cases = Path(f"test_{stem}_captured.py"), Path(f"{stem}_captured")
    cases.mkdir()
    with open(cases / LINES, "x", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record.document) + "\n")
            for name in record.files():
                shutil.copyfile(record.segment / name, cases / name)
    text = _TEXT.format(
        model=arguments.model,
        file=path,
        directory=json.dumps(arguments.directory),
        cases=cases,
    )
    with open(path, "x", encoding="utf-8") as file:
        file.write(text)
    return path
