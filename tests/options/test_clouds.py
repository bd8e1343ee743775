"""Options of SageMaker's and Vertex AI's endpoints, and the variables that they are set by."""

from __future__ import annotations

import pytest

from zmqtriton.options import OptionError, Options, parse, with_environment
from zmqtriton.options.clouds import endpoint_settings

REPOSITORY = "--model-repository=/models"
ROUTES = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}
VERTEX = "failed to start Vertex AI service: Invalid argument - "


def started(*words: str, **environment: str) -> Options:
    return with_environment(parse([*words], environment=environment), environment)


def refusal(*words: str, **environment: str) -> str:
    with pytest.raises(OptionError) as caught:
        started(*words, **environment)
    return str(caught.value)


@pytest.mark.row("C99")
def test_nothing_of_it_is_served_by_default() -> None:
    options = started(REPOSITORY)

    assert not (options.allow_sagemaker)
    assert not (options.allow_vertex_ai)
    assert options.allow_http
    assert options.allow_grpc


@pytest.mark.row("C99")
def test_vertex_ai_says_by_variables_what_to_serve_and_where() -> None:
    options = started(
        AIP_MODE="PREDICTION", AIP_HTTP_PORT="7080", AIP_STORAGE_URI="gs://b/m", **ROUTES
    )

    assert options.allow_vertex_ai
    assert (7080, ("gs://b/m",)) == (options.vertex_ai_port, options.model_repository)
    assert not (options.allow_http)
    assert not (options.allow_grpc)
    assert options.allow_metrics


def test_what_is_written_counts_before_variables() -> None:
    options = started(
        REPOSITORY,
        "--allow-http=true",
        "--allow-vertex-ai=false",
        "--vertex-ai-port=1",
        AIP_MODE="PREDICTION",
        AIP_HTTP_PORT="7080",
        AIP_STORAGE_URI="/other",
    )

    assert ("/models",) == options.model_repository
    assert options.allow_http
    assert (False, 1) == (options.allow_vertex_ai, options.vertex_ai_port)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({}, "API_PREDICT_ROUTE is not defined for Vertex AI endpoint"),
        ({**ROUTES, "AIP_HEALTH_ROUTE": ""}, "AIP_HEALTH_ROUTE is not defined for Vertex AI endpo"),
        ({**ROUTES, "AIP_HEALTH_ROUTE": "("}, "AIP_HEALTH_ROUTE '(': missing )"),
    ],
)
def test_routes_of_vertex_ai_must_be_there(environment: dict[str, str], text: str) -> None:
    message = refusal(REPOSITORY, "--allow-vertex-ai=true", **environment)

    assert message.startswith(f"{VERTEX}{text}")


def test_variables_that_cannot_be_meant_are_refused() -> None:
    assert "AIP_HTTP_PORT: 'x' is not a port" == refusal(REPOSITORY, AIP_HTTP_PORT="x")
    message = refusal(REPOSITORY, "--allow-sagemaker=1", SAGEMAKER_TRITON_INFERENCE_TYPE="train")
    assert message.startswith("SAGEMAKER_TRITON_INFERENCE_TYPE: 'train' is none of: infer, ")
    assert not started(REPOSITORY, SAGEMAKER_TRITON_INFERENCE_TYPE="train").allow_sagemaker


def test_sagemaker_has_the_other_ports_in_a_range() -> None:
    words = (REPOSITORY, "--allow-sagemaker=1", "--sagemaker-safe-port-range=8000-8001")
    text = "The server cannot listen to metrics requests at port 8002, allowed port range is "

    assert f"{text}[8000, 8001]" == refusal(*words)
    assert (8000, 8001) == started(*words, "--allow-metrics=0").sagemaker_safe_port_range


def test_clients_memory_stays_off_where_these_ports_are_open_to_others() -> None:
    words = (REPOSITORY, "--allow-http=0", "--grpc-address=127.0.0.1")

    assert started(*words).allow_client_shm
    assert not started(*words, "--allow-sagemaker=1").allow_client_shm


def test_sagemaker_names_model_probe_and_kind_of_inference() -> None:
    settings = endpoint_settings(
        {
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "m",
            "SAGEMAKER_TRITON_PING_MODE": "live",
            "SAGEMAKER_TRITON_INFERENCE_TYPE": "generate",
        }
    )

    assert ["m", "live", "generate"] == list(settings.values())[:3]
    unset = "unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
    assert [unset, "ready", "infer", "", ""] == list(endpoint_settings({}).values())
