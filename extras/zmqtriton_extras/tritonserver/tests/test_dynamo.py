"""The calls of NVIDIA Dynamo's worker, `python -m dynamo.triton`, in its order.

Its package is large, so that the worker itself runs in `make test KIND=peers` alone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.model_config_pb2 as model_config
from google.protobuf import json_format

from tests.support.server import Server as Repository
from zmqtriton_extras.tritonserver import api as tritonserver
from zmqtriton_extras.tritonserver.api import LogLevel, TritonError
from zmqtriton_extras.tritonserver.log_records import Record

pytestmark = pytest.mark.system


async def answers(model: tritonserver.Model, **inputs: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Return the responses and their outputs as the worker reads them."""
    request = model.create_request()
    for name, array in inputs.items():
        request.inputs[name] = array
    datatypes = {output["name"]: output["datatype"] for output in model.metadata()["outputs"]}
    return [
        (
            response,
            {
                name: tensor.to_bytes_array()
                if datatypes[name] == "BYTES"
                else np.from_dlpack(tensor)
                for name, tensor in response.outputs.items()
            },
        )
        async for response in model.async_infer(request)
    ]


async def serve(server: tritonserver.Server) -> None:
    names = sorted({name for name, _ in server.models(exclude_not_ready=True)})
    assert names == ["add_sub", "string_upper"]
    for name in names:
        model = server.model(name)
        config = json_format.ParseDict(model.config(), model_config.ModelConfig())
        assert name == config.name
        assert config.SerializeToString()
        assert (server.ready(), model.ready()) == (True, True)

    ones = np.ones((1, 16), np.float32)
    [(response, outputs)] = await answers(server.model("add_sub"), INPUT0=ones, INPUT1=ones)
    assert (response.model.name, response.request_id or "") == ("add_sub", "")
    assert (ones + ones).tolist() == outputs["OUTPUT0"].tolist()
    assert response.outputs["OUTPUT0"].memory_type == tritonserver.MemoryType.CPU

    # text comes as bytes or as str
    text = np.array([[b"one", "two"]], dtype=object)
    [(_, outputs)] = await answers(server.model("string_upper"), INPUT0=text)
    assert outputs["OUTPUT0"].tolist() == [[b"ONE", b"TWO"]]

    page = await asyncio.to_thread(server.metrics)
    assert 'nv_inference_request_success{model="add_sub",version="1"} 1' in page


def test_its_worker_serves_all_models_and_gets_the_log(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "s", models=["add_sub", "string_upper"])
    records: list[Record] = []
    server = tritonserver.Server(
        model_repository=str(repository.repository),
        server_id="triton",
        log_info=True,
        log_warn=True,
        log_error=True,
        metrics=True,
        log_callback=lambda *record: records.append(record),
    )
    server.start(wait_until_ready=True)
    try:
        asyncio.run(serve(server))
    finally:
        server.stop()

    with pytest.raises(TritonError):
        server.ready()
    levels, files, lines, times, texts = zip(*records, strict=True)
    assert LogLevel.INFO in levels
    assert all(file.endswith(".py") for file in files)
    assert min(lines) > 0
    assert times[-1] >= times[0] > 1_700_000_000_000_000
    assert any("add_sub" in text for text in texts)
