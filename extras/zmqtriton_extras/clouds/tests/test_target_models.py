"""Models that SageMaker loads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.http_api.fakes import FakeGateway
from zmqtriton_extras.clouds.target_models import TargetModels
from zmqtriton_floor.errors import Unsupported


class Request:
    """The part of a request that a load reads."""

    def __init__(self, document: dict[str, str]) -> None:
        self._body = json.dumps(document).encode()

    async def read_control(self) -> bytes:
        return self._body

    def header(self, name: bytes) -> None:
        return None


def test_where_loads_are_not_allowed_the_refusal_does_not_tell_what_there_is(
    tmp_path: Path,
) -> None:
    gateway: Any = FakeGateway(model_control_mode="none")
    gateway.control_result = Unsupported("not allowed")
    models = TargetModels(gateway)
    (tmp_path / "empty").mkdir()

    for name in ("empty", "missing"):
        request: Any = Request({"model_name": "m", "url": str(tmp_path / name)})
        with pytest.raises(Unsupported, match="not allowed"):
            asyncio.run(models.load(request, None))  # type: ignore[arg-type]

    assert [verb for verb, _ in gateway.calls] == ["repository.register"] * 2
