"""The option of pushed logs."""

from __future__ import annotations

import pytest

from zmqtriton_extras.otlp_logs.options import problem, url


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("http://c:4318", "http://c:4318/v1/logs"),
        ("c:4318/", "http://c:4318/v1/logs"),
        ("https://c/own", "https://c/own"),
    ],
)
def test_the_path_may_be_left_out(option: str, expected: str) -> None:
    assert expected == url({"otlp_logs": option})
    assert "" == problem({"otlp_logs": option})


def test_a_wrong_address_is_a_fault_that_names_the_option() -> None:
    fault = problem({"otlp_logs": "ftp://c"})

    assert fault.startswith('Bad option: "--otlp-logs"')
