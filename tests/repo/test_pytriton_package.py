"""The distribution with PyTriton's import name: scripts that say `pytriton` get our modules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.repo.distributions import run, unpacked
from zmqtriton_floor import __version__

PACKAGE = ROOT / "packages" / "pytriton"
#: The public names of PyTriton 0.7.0's modules, as far as scripts have a use for them.
NAMES = {
    "__main__": "main",
    "check": "",
    "check.add_sub": "add_sub_example add_sub_example_thread",
    "check.env_checks": "env_checks",
    "check.utils": "DEFAULT_LOG_FORMAT ScriptThread find_free_port",
    "client": "AsyncioDecoupledModelClient AsyncioModelClient DecoupledModelClient "
    "FuturesModelClient ModelClient",
    "client.asyncio_utils": "asyncio_get_model_config asyncio_get_model_state "
    "asyncio_wait_for_model_ready",
    "client.auth": "create_auth_headers extract_access_token_from_headers",
    "client.client": "AsyncioDecoupledModelClient AsyncioModelClient BaseModelClient "
    "DEFAULT_INFERENCE_TIMEOUT_S DecoupledModelClient FuturesModelClient ModelClient",
    "client.exceptions": "PyTritonClientClosedError PyTritonClientError "
    "PyTritonClientInferenceServerError PyTritonClientInvalidUrlError "
    "PyTritonClientModelDoesntSupportBatchingError PyTritonClientModelUnavailableError "
    "PyTritonClientQueueFullError PyTritonClientTimeoutError PyTritonClientValueError",
    "client.utils": "DEFAULT_GRPC_PORT DEFAULT_HTTP_PORT ModelState TritonUrl "
    "create_client_from_url get_model_config get_model_state "
    "wait_for_model_ready wait_for_server_ready",
    "client.warnings": "NotSupportedTimeoutWarning PyTritonWarning",
    "constants": "DEFAULT_GRPC_PORT DEFAULT_HTTP_PORT DEFAULT_METRICS_PORT TRITON_LOCAL_IP "
    "DEFAULT_TRITON_STARTUP_TIMEOUT_S TRITON_CONTEXT_FIELD_NAME",
    "decorators": "ConstantPadder InferenceRequest InferenceRequests InferenceResult "
    "InferenceResults InputNames ModelConfigDict TritonContext batch convert_output "
    "fill_optionals first_value get_inference_request_batch_size get_model_config "
    "get_triton_context group_by_keys group_by_values pad_batch sample triton_context",
    "exceptions": "PyTritonBadParameterError PyTritonError PyTritonInvalidOperationError "
    "PyTritonModelConfigError PyTritonRuntimeError PyTritonUnrecoverableError "
    "PyTritonValidationError",
    "model_config": "DeviceKind DynamicBatcher ModelConfig QueuePolicy Tensor TimeoutAction",
    "model_config.common": "DeviceKind DynamicBatcher ModelWarmup QueuePolicy TimeoutAction "
    "WarmupInput",
    "model_config.generator": "ModelConfigGenerator",
    "model_config.model_config": "ModelConfig",
    "model_config.parser": "ModelConfigParser",
    "model_config.tensor": "Tensor",
    "model_config.triton_model_config": "ResponseCache TensorSpec TritonModelConfig",
    "proxy.telemetry": "build_proxy_tracer_from_triton_config end_span get_telemetry_tracer "
    "parse_trace_config set_telemetry_tracer start_span_from_remote start_span_from_span "
    "traced_span",
    "proxy.types": "Request Requests Response Responses ResponsesNoneOrError ResponsesOrError "
    "Scope",
    "triton": "DEFAULT_PROTECTED_ENDPOINTS DefaultTritonLifecyclePolicy RemoteTriton "
    "TRITON_ACCESS_HEADER Triton TritonBase TritonConfig TritonLifecyclePolicy "
    "TritonSecurityConfig VALID_TRITON_ENDPOINTS VertextAILifecyclePolicy",
    "utils": "",
    "utils.dataclasses": "kwonly_dataclass",
    "utils.distribution": "get_root_module_path is_editable_install",
    "utils.endpoint_utils": "get_endpoint",
    "utils.logging": "silence_3rd_party_loggers",
    "utils.workspace": "Workspace",
}

#: Prints what a script finds under each module's names.
SCRIPT = """
import importlib, json, sys
found = {}
for name, names in json.load(sys.stdin).items():
    theirs = importlib.import_module(f"pytriton.{name}")
    ours = importlib.import_module(f"zmqtriton.pytriton.{name}")
    found[name] = [key for key in names.split() if getattr(theirs, key) is not getattr(ours, key)]
print(json.dumps([theirs.__file__, found]))
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place where a script finds its wheel, unpacked."""
    return unpacked(PACKAGE, tmp_path_factory.mktemp("pytriton"))


def test_scripts_find_our_names_under_pytritons(target: Path) -> None:
    path, differing = json.loads(run(target, SCRIPT, NAMES))

    assert str(target) in path
    assert {name: [] for name in NAMES} == differing


def test_modules_are_imported_when_they_are_asked_for(target: Path) -> None:
    code = """
import sys, pytriton
from pytriton.decorators import batch
loaded = {name for name in sys.modules if name.startswith("zmqtriton")}
client = "zmqtriton_addons.pytriton.client"
print(pytriton.__version__, client in loaded, "zmqtriton.embedded" in loaded)
print(pytriton.model_config.Tensor.__module__, hasattr(pytriton, "nothing"))
"""
    assert [
        "0.7.0 False False",
        "zmqtriton_addons.pytriton.model_config.tensor False",
    ] == run(target, code).splitlines()


def test_all_its_modules_are_among_those_with_names() -> None:
    modules = {
        ".".join(path.relative_to(PACKAGE / "pytriton").with_suffix("").parts)
        for path in (PACKAGE / "pytriton").rglob("*.py")
    }

    assert {*NAMES, "proxy"} == {name.removesuffix(".__init__") for name in modules} - {"__init__"}


def test_its_version_is_that_of_zmqtriton() -> None:
    text = (PACKAGE / "pyproject.toml").read_text("utf-8")

    assert [__version__, __version__] == re.findall(r'"(?:zmqtriton==)?([0-9][0-9.]+)"', text)
