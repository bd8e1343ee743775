"""Options of SageMaker's and Vertex AI's endpoints, and the variables that they are set by."""

from __future__ import annotations

import pytest

from tests.supervisor.settings import settings
from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.options.parser import parse, with_environment
from zmqtriton.options.result import Options
from zmqtriton.options.values import OptionError
from zmqtriton.supervisor.machine.process_settings import read_policy
from zmqtriton_extras.clouds.sagemaker import sagemaker_targets

REPOSITORY = "--model-repository=/models"
ROUTES = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}


VERTEX = "failed to start Vertex AI service: Invalid argument - "


def started_with(*words: str, **environment: str) -> Options:
    return with_environment(parse([*words], environment=environment), environment)


def refusal_of(*words: str, **environment: str) -> str:
    with pytest.raises(OptionError) as caught:
        started_with(*words, **environment)
    return str(caught.value)


@pytest.mark.row("C99")
def test_nothing_of_it_is_served_by_default() -> None:
    options = started_with(REPOSITORY)

    assert not options.value("allow_sagemaker")
    assert not options.value("allow_vertex_ai")
    assert options.allow_http
    assert options.allow_grpc


@pytest.mark.row("C99")
def test_vertex_ai_says_by_variables_what_to_serve_and_where() -> None:
    options = started_with(
        AIP_MODE="PREDICTION", AIP_HTTP_PORT="7080", AIP_STORAGE_URI="gs://b/m", **ROUTES
    )

    assert options.value("allow_vertex_ai")
    assert (options.value("vertex_ai_port"), options.model_repository) == (7080, ("gs://b/m",))
    assert not options.allow_http
    assert not options.allow_grpc
    assert options.allow_metrics


def test_what_is_written_counts_before_variables() -> None:
    options = started_with(
        REPOSITORY,
        "--allow-http=true",
        "--allow-vertex-ai=false",
        "--vertex-ai-port=1",
        AIP_MODE="PREDICTION",
        AIP_HTTP_PORT="7080",
        AIP_STORAGE_URI="/other",
    )

    assert options.model_repository == ("/models",)
    assert options.allow_http
    assert tuple(map(options.value, ("allow_vertex_ai", "vertex_ai_port"))) == (False, 1)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({}, "API_PREDICT_ROUTE is not defined for Vertex AI endpoint"),
        ({**ROUTES, "AIP_HEALTH_ROUTE": ""}, "AIP_HEALTH_ROUTE is not defined for Vertex AI endpo"),
        ({**ROUTES, "AIP_HEALTH_ROUTE": "("}, "AIP_HEALTH_ROUTE '(': missing )"),
    ],
)
def test_routes_of_vertex_ai_must_be_there(environment: dict[str, str], text: str) -> None:
    message = refusal_of(REPOSITORY, "--allow-vertex-ai=true", **environment)

    assert message.startswith(f"{VERTEX}{text}")


def test_variables_that_cannot_be_meant_are_refused() -> None:
    assert (
        refusal_of(REPOSITORY, AIP_HTTP_PORT="x") == "AIP_HTTP_PORT: 'x' must be a port, 1 to 65535"
    )
    message = refusal_of(REPOSITORY, "--allow-sagemaker=1", SAGEMAKER_TRITON_INFERENCE_TYPE="train")
    assert message.startswith("SAGEMAKER_TRITON_INFERENCE_TYPE: 'train' must be one of infer, ")
    assert started_with(REPOSITORY, SAGEMAKER_TRITON_INFERENCE_TYPE="train").allow_http


def test_sagemaker_has_the_other_ports_in_a_range() -> None:
    words = (REPOSITORY, "--allow-sagemaker=1", "--sagemaker-safe-port-range=8000-8001")
    text = "The server cannot listen to metrics requests at port 8002, allowed port range is "

    assert f"{text}[8000, 8001]" == refusal_of(*words)
    options = started_with(*words, "--allow-metrics=0")
    assert options.value("sagemaker_safe_port_range") == (8000, 8001)


def test_clients_memory_stays_off_where_these_ports_are_open_to_others() -> None:
    words = (REPOSITORY, "--allow-http=0", "--grpc-address=127.0.0.1")

    assert started_with(*words).allow_client_shm
    assert not started_with(*words, "--allow-sagemaker=1").allow_client_shm


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("--allow-sagemaker=true", "--sagemaker-port=8001"),
            "The server cannot listen to GRPC requests and SageMaker requests at the same address "
            "and port 0.0.0.0:8001",
        ),
        (
            ("--allow-sagemaker=true", "--allow-vertex-ai=true"),
            "The server cannot listen to SageMaker requests and Vertex AI requests at the same "
            "address and port 0.0.0.0:8080",
        ),
    ],
)
def test_two_services_cannot_have_one_port(words: tuple[str, ...], text: str) -> None:
    assert text == refusal_of(REPOSITORY, *words, **ROUTES)


def test_a_value_is_needed_and_threads_are_not_ours() -> None:
    options = started_with(REPOSITORY, "--allow-sagemaker", "false", "--sagemaker-thread-count=1")

    assert options.warnings == (
        "accepted and ignored: --sagemaker-thread-count: the processes of HTTP serve these "
        "endpoints, too",
    )
    assert started_with(REPOSITORY, "--allow-sagemaker=false").warnings == ()


def test_http_is_served_for_these_endpoints_alone_too() -> None:
    for name in ("sagemaker", "vertex-ai"):
        words = [REPOSITORY, "--allow-http=false", f"--allow-{name}=true"]
        assert "http-arbiter" in read_policy(parse(words)).frontend_roles
        assert "http-arbiter" not in read_policy(parse(words[:2])).frontend_roles


def test_sagemaker_names_model_probe_and_kind_of_inference() -> None:
    named = {
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "m",
        "SAGEMAKER_TRITON_PING_MODE": "live",
        "SAGEMAKER_TRITON_INFERENCE_TYPE": "generate",
    }

    assert sagemaker_targets(named) == ("m", "live", "generate")
    unset = "unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
    assert (unset, "ready", "infer") == sagemaker_targets({})


@pytest.mark.parametrize(
    ("default", "models", "problem"),
    [
        ("", ["m"], ""),
        ("m", ["m", "n"], ""),
        ("", ["m", "n"], "Expect the model repository contains only a single model if default "),
        ("x", ["m"], "Expect the default model 'x' is loaded"),
    ],
)
def test_vertex_ai_needs_a_model_for_predictions(
    default: str, models: list[str], problem: str
) -> None:
    blueprints = [*map(make_blueprint, models)]
    served = settings(allow_vertex_ai=True, vertex_ai_default_model=default)
    world = SupervisorHarness(*blueprints, control_mode="none", settings=served)

    world.start()

    assert [problem] == [
        each.removeprefix(VERTEX)[: len(problem)] for each in world.complaints
    ] or (not problem and not world.complaints)
    assert (1 if problem else None) == world.status


def test_without_vertex_ai_no_model_is_needed() -> None:
    world = SupervisorHarness(control_mode="none", settings=settings())

    assert world.start().status is None
