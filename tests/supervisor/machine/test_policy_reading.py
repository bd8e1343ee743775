"""The core's policy, as the options and the cores of this machine make it."""

from __future__ import annotations

import os

import pytest

from zmqtriton.options import parse
from zmqtriton.supervisor.machine.policy_reading import read_policy
from zmqtriton.supervisor.policy import Policy


def policy(*arguments: str) -> Policy:
    return read_policy(parse(["--model-repository=/models", *arguments]))


@pytest.mark.parametrize(("cores", "processes"), [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)])
def test_every_second_core_has_a_grpc_process(
    monkeypatch: pytest.MonkeyPatch, cores: int, processes: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))

    assert processes == policy().frontend_roles.count("grpc")
    assert 3 == policy("--grpc-processes=3").frontend_roles.count("grpc")


@pytest.mark.parametrize(
    ("arguments", "roles"),
    [
        ([], {"http-arbiter", "grpc", "metrics"}),
        (["--allow-http=false"], {"grpc", "metrics"}),
        (["--allow-http=false", "--allow-sagemaker=true"], {"http-arbiter", "grpc", "metrics"}),
        (["--allow-http=false", "--allow-vertex-ai=true"], {"http-arbiter", "grpc", "metrics"}),
        (["--allow-grpc=false"], {"http-arbiter", "metrics"}),
        (["--allow-metrics=false"], {"http-arbiter", "grpc"}),
        (["--allow-metrics=false", "--agent-check-port=9"], {"http-arbiter", "grpc", "metrics"}),
        (["--announce=127.0.0.1:9"], {"http-arbiter", "grpc", "metrics", "announcer"}),
        (
            ["--trace-config=triton,file=/tmp/t", "--trace-config=level=TIMESTAMPS"],
            {"http-arbiter", "grpc", "metrics", "tracer"},
        ),
    ],
)
def test_a_process_is_started_for_what_is_asked_for(arguments: list[str], roles: set[str]) -> None:
    assert roles == set(policy(*arguments).frontend_roles)


def test_a_vertex_ai_model_counts_where_its_endpoints_are_served() -> None:
    assert policy().vertex_ai_default_model is None
    assert (
        "m"
        == policy("--allow-vertex-ai=true", "--vertex-ai-default-model=m").vertex_ai_default_model
    )


def test_directories_are_absolute_and_stores_keep_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir("/")

    repositories = policy(
        "--model-repository=some", "--model-repository=s3://bucket/x"
    ).repositories

    assert ("/models", "/some", "s3://bucket/x") == repositories


def test_stubs_are_forked_where_they_can_be() -> None:
    assert policy().has_fork_server
