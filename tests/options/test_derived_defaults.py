"""Options whose default follows from others."""

from __future__ import annotations

import pytest

from zmqtriton.options import parse

REPOSITORY = "--model-repository=/models"


@pytest.mark.row("D14")
@pytest.mark.parametrize(
    ("words", "is_on"),
    [
        ([], False),
        (["--http-address=127.0.0.1"], False),
        (["--grpc-address=127.0.0.1"], True),
        (["--grpc-address=::1", "--grpc-reflection=false"], False),
        (["--grpc-reflection=true"], True),
    ],
)
def test_reflection_is_for_loopback_unless_told(words: list[str], is_on: bool) -> None:
    assert is_on == parse([REPOSITORY, *words]).grpc_reflection
