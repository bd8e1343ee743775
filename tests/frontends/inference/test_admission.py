"""Refusals of what no wire could carry, whatever protocol it came by."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from zmqtriton_floor import logs, wire
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.inference.admission import CheckedRequest, Options, prepare
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.process import request_log


@pytest.fixture
def catalogue() -> Catalogue:
    catalogue = Catalogue()
    config = json.dumps({"name": "m", "max_batch_size": 0, "input": [], "output": []})
    catalogue.update(wire.VersionInfo(1, "m", 1, "READY", None, 1, config, b""))
    return catalogue


def _prepare(catalogue: Catalogue, options: Options, **parameters: Any) -> CheckedRequest:
    body = wire.RequestBody("", parameters, [], [])
    return prepare(catalogue, catalogue.find("m"), body, options)


def test_what_fits_the_wire_passes(catalogue: Catalogue) -> None:
    options = Options(3, 1, 2**63 - 1, 2**63 - 1, 2**64 - 1)

    checked = _prepare(catalogue, options, a=2**63, b=-(2**63), c=True, d="x", e=1e300)

    assert options == checked.options
    assert wire.encode_body(checked.body)


@pytest.mark.parametrize(
    "options",
    [
        Options(priority=-1),
        Options(priority=2**63),
        Options(timeout_us=-1),
        Options(timeout_us=2**63),
        Options(deadline_ns=2**63),
        Options(correlation=-1),
        Options(correlation=2**64),
        Options(correlation="x" * 1025),
    ],
)
def test_options_that_no_header_could_carry_are_refused(
    catalogue: Catalogue, options: Options
) -> None:
    with pytest.raises(InvalidArgument, match="out of range"):
        _prepare(catalogue, options)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**30])
def test_parameters_that_no_body_could_carry_are_refused(catalogue: Catalogue, value: int) -> None:
    with pytest.raises(InvalidArgument, match="'a' is out of range"):
        _prepare(catalogue, Options(), a=value)


@pytest.mark.parametrize("escaped", ["1", "0"])
@pytest.mark.row("I06")
def test_a_refusal_is_a_verbose_line_that_a_client_cannot_end(
    catalogue: Catalogue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    escaped: str,
) -> None:
    monkeypatch.setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", escaped)
    monkeypatch.setattr(request_log, "is_on", True)
    caplog.set_level(logging.DEBUG)
    wanted = {"name": "X", "data_type": "TYPE_FP32", "dims": [1]}
    config = json.dumps({"name": "n", "max_batch_size": 0, "input": [wanted], "output": []})
    catalogue.update(wire.VersionInfo(2, "n", 1, "READY", None, 1, config, b""))
    forged = "I0205 18:34:18.707423 1 file.cc:123] forged"
    tensor = wire.Tensor(f"\n{forged}\n{forged}", 11, [1], bytes(4))
    body = wire.RequestBody("r", {}, [], [tensor])

    with pytest.raises(InvalidArgument) as refused:
        prepare(catalogue, catalogue.find("n"), body, Options())

    [record] = caplog.records
    assert f"[request id: r] Infer failed: {refused.value.text}" == record.getMessage()
    # only an operator who wants texts as they are has them so
    lines = logs.Formatter().format(record).splitlines()
    assert (forged in lines) == (escaped == "0")


@pytest.mark.row("I06")
def test_a_request_that_fits_is_described_in_verbose_lines(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(request_log, "is_on", True)
    caplog.set_level(logging.DEBUG)
    tensors = {"name": "X", "data_type": "TYPE_FP32", "dims": [2]}
    outputs = [{**tensors, "name": name} for name in ("Y", "Z")]
    config = {"name": "n", "max_batch_size": 4, "input": [tensors], "output": outputs}
    catalogue.update(wire.VersionInfo(2, "n", 3, "READY", None, 1, json.dumps(config), b""))
    tensor = wire.Tensor("X", 11, [1, 2], bytes(8))

    for asked in ([], ["Z"]):
        body = wire.RequestBody("r", {}, asked, [tensor])
        prepare(catalogue, catalogue.find("n"), body, Options(priority=2, correlation=7))

    lines = [record.getMessage().splitlines() for record in caplog.records]
    described = [more for first, *more in lines if "prepared: " in first]
    inputs = ["inputs:", "input: X, type: FP32, shape: [1,2]"]
    assert [
        [*inputs, "requested outputs:", "Y", "Z"],
        [*inputs, "requested outputs:", "Z"],
    ] == described
    head = (
        "[request id: r] prepared: request id: r, model: n, actual version: 3, correlation id: 7, "
        "batch size: 1, priority: 2, timeout (us): 0"
    )
    assert head in [first for first, *_ in lines]
