"""gRPC with protobuf 7, which cannot live beside tritonclient in one environment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from tests.support.clients import infer_inputs, open_client
from tests.support.server import Server


@pytest.mark.system
@pytest.mark.long("system/protocols/test_infer.py::test_tritonclient_gets_its_answer")
def test_a_server_with_protobuf_7_answers_a_client_with_protobuf_6(
    tmp_path: Path, python_with_protobuf7: Path
) -> None:
    values = np.arange(16, dtype=np.float32).reshape(1, 16)
    python = python_with_protobuf7
    with Server(tmp_path, models=["add_sub"], python=python, frontends=("grpc",)) as server:
        with open_client(server, "grpc") as client:
            inputs = infer_inputs(grpcclient, INPUT0=values, INPUT1=values)
            result = client.infer("add_sub", inputs)
            metadata = client.get_model_metadata("add_sub")

        exit_code = server.stop()

    assert [["OUTPUT0", "OUTPUT1"], 0] == [[output.name for output in metadata.outputs], exit_code]
    np.testing.assert_array_equal(values + values, result.as_numpy("OUTPUT0"))
    np.testing.assert_array_equal(values - values, result.as_numpy("OUTPUT1"))
