"""The descriptor set: equal to Triton's public one, made of our .proto files, in a private pool."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

import zmqtriton_protos

ROOT = Path(__file__).resolve().parent.parent.parent
DESCRIPTORS = Path(zmqtriton_protos.__file__).with_name("descriptors.pb")


def our_file(name: str) -> descriptor_pb2.FileDescriptorProto:
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes())
    return next(file for file in files.file if file.name == name)


def without_json_names(message: Any) -> Any:
    """protoc writes json_name into a descriptor set and not into generated Python."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        without_json_names(nested)
    return message


@pytest.mark.parametrize(
    ("file_name", "module_name"),
    [("model_config.proto", "model_config_pb2"), ("grpc_service.proto", "service_pb2")],
)
def test_every_message_enum_and_service_equals_tritonclients(
    file_name: str, module_name: str
) -> None:
    pytest.importorskip("tritonclient.grpc")
    module = importlib.import_module(f"tritonclient.grpc.{module_name}")
    theirs = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)

    ours = our_file(file_name)

    assert [m.name for m in theirs.message_type] == [m.name for m in ours.message_type]
    for their_message, our_message in zip(theirs.message_type, ours.message_type, strict=True):
        assert their_message == without_json_names(our_message)
    assert list(theirs.enum_type) == list(ours.enum_type)
    assert [s.name for s in theirs.service] == [s.name for s in ours.service]
    for their_service, our_service in zip(theirs.service, ours.service, strict=True):
        assert [
            (m.name, m.input_type, m.output_type, m.client_streaming, m.server_streaming)
            for m in their_service.method
        ] == [
            (m.name, m.input_type, m.output_type, m.client_streaming, m.server_streaming)
            for m in our_service.method
        ]


def test_the_descriptor_set_is_what_the_proto_files_compile_to(tmp_path: Path) -> None:
    if importlib.util.find_spec("grpc_tools") is None:
        pytest.skip("grpcio-tools is not installed")
    output = tmp_path / "descriptors.pb"

    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "build_protos.py"), "--output", str(output)],
        check=True,
    )

    expected = descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes())
    assert expected == descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes())


@pytest.mark.parametrize("order", ["ours first", "theirs first"])
def test_tritonclient_may_be_imported_before_or_after_in_one_process(order: str) -> None:
    pytest.importorskip("tritonclient.grpc")
    imports = ["import zmqtriton_protos", "import tritonclient.grpc"]
    if order == "theirs first":
        imports.reverse()
    check = (
        "from tritonclient.grpc import service_pb2\n"
        "data = service_pb2.ModelInferRequest(model_name='m', id='7').SerializeToString()\n"
        "ours = zmqtriton_protos.message('inference.ModelInferRequest').FromString(data)\n"
        "assert (ours.model_name, ours.id) == ('m', '7')\n"
    )

    subprocess.run(
        [sys.executable, "-c", "\n".join([*imports, check])],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "frontends"), *sys.path])},
    )


def test_nothing_is_registered_in_the_default_pool() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("grpc.health.v1.HealthCheckRequest")


def test_the_same_name_gives_the_same_class() -> None:
    assert zmqtriton_protos.ModelConfig is zmqtriton_protos.message("inference.ModelConfig")


def test_an_unknown_message_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        zmqtriton_protos.message("inference.NoSuchMessage")


def test_services_tell_methods_classes_and_streaming() -> None:
    inference = zmqtriton_protos.SERVICES["inference.GRPCInferenceService"]
    health = zmqtriton_protos.SERVICES["grpc.health.v1.Health"]

    assert 20 == len(inference)
    streaming = [m.name for m in inference if m.client_streaming or m.server_streaming]
    assert ["ModelStreamInfer"] == streaming
    assert [("Check", False), ("Watch", True)] == [(m.name, m.server_streaming) for m in health]
    stream = next(m for m in inference if m.name == "ModelStreamInfer")
    assert zmqtriton_protos.message("inference.ModelInferRequest") is stream.request
    assert zmqtriton_protos.message("inference.ModelStreamInferResponse") is stream.response


def test_an_enum_gives_its_values_by_name() -> None:
    assert 13 == zmqtriton_protos.enum("inference.DataType").values_by_name["TYPE_STRING"].number
