"""Warnings about options that are not honoured, and the values of all others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.options.test_parser import parsed, refused
from zmqtriton.options import RateLimitResource, Setting
from zmqtriton.options.kinds import OptionSupport
from zmqtriton.options.table import OPTIONS_BY_NAME
from zmqtriton.options.values import ModelFile


def test_whatever_is_not_honoured_has_a_reason() -> None:
    assert [] == [
        name
        for name, one in OPTIONS_BY_NAME.items()
        if bool(one.reason) == (one.support is OptionSupport.SUPPORTED)
    ]


@pytest.mark.parametrize(
    "word",
    [
        "--metrics-config=summary_latencies=true",
        "--allow-gpu-metrics=false",
        "--trace-config=triton,file=/tmp/x",
        "--trace-config=rate=10",
    ],
)
def test_what_has_an_effect_is_not_said_to_have_none(word: str) -> None:
    assert () == parsed(word).warnings


def test_what_has_no_effect_yet_is_said_once() -> None:
    options = parsed("--model-namespacing=true", "--model-namespacing=1")

    assert (
        "accepted but has no effect yet: --model-namespacing: "
        "a name in two repositories is refused",
    ) == options.warnings


@pytest.mark.parametrize(
    ("word", "why"),
    [
        pytest.param(
            "--http-thread-count=4",
            "no request waits for a thread; see --http-workers",
            marks=pytest.mark.row("--http-thread-count"),
        ),
        pytest.param(
            "--grpc-max-response-pool-size=8",
            "256 responses of a stream may wait for its reader, with any value",
            marks=pytest.mark.row("--grpc-max-response-pool-size"),
        ),
        pytest.param(
            "--cache-directory=/x",
            "the cache is built in",
            marks=pytest.mark.row("--cache-directory"),
        ),
        pytest.param(
            "--pinned-memory-pool-byte-size=1",
            "no memory is pinned",
            marks=pytest.mark.row("--pinned-memory-pool-byte-size"),
        ),
        pytest.param(
            "--cuda-memory-pool-byte-size=0:1",
            "memory of a GPU is taken as it is needed",
            marks=pytest.mark.row("--cuda-memory-pool-byte-size"),
        ),
        ("--buffer-manager-thread-count=4", "tensors are copied by no threads of their own"),
    ],
)
def test_what_is_not_ours_to_tune_is_said_with_the_reason(word: str, why: str) -> None:
    name = word.partition("=")[0]

    assert (f"accepted and ignored: {name}: {why}",) == parsed(word).warnings


@pytest.mark.parametrize(
    ("word", "value"),
    [
        pytest.param("--allow-metrics=off", False, marks=pytest.mark.row("--allow-metrics")),
        pytest.param("--backend-directory=/b", "/b", marks=pytest.mark.row("--backend-directory")),
        pytest.param("--grpc-address=::1", "::1", marks=pytest.mark.row("--grpc-address")),
        pytest.param("--grpc-port=9001", 9001, marks=pytest.mark.row("--grpc-port")),
        pytest.param("--http-address=::1", "::1", marks=pytest.mark.row("--http-address")),
        pytest.param("--http-port=9000", 9000, marks=pytest.mark.row("--http-port")),
        ("--model-file=/m/scale.py", (ModelFile("scale", "/m/scale.py"),)),
        ("--model-file=other=/m/scale.py", (ModelFile("other", "/m/scale.py"),)),
        ("--reload=true", True),
        pytest.param("--log-error=false", False, marks=pytest.mark.row("--log-error")),
        pytest.param("--log-file=/l", "/l", marks=pytest.mark.row("--log-file")),
        pytest.param("--log-info=false", False, marks=pytest.mark.row("--log-info")),
        pytest.param("--log-verbose=1=1", 1, marks=pytest.mark.row("--log-verbose")),
        pytest.param("--log-warning=false", False, marks=pytest.mark.row("--log-warning")),
        pytest.param("--metrics-port=9002", 9002, marks=pytest.mark.row("--metrics-port")),
        pytest.param(
            "--min-supported-compute-capability=7.5",
            7.5,
            marks=pytest.mark.row("--min-supported-compute-capability"),
        ),
        pytest.param(
            "--model-load-retry-count=2", 2, marks=pytest.mark.row("--model-load-retry-count")
        ),
        pytest.param(
            "--model-load-thread-count=1", 1, marks=pytest.mark.row("--model-load-thread-count")
        ),
        pytest.param(
            "--rate-limit-resource=r:2:0",
            (RateLimitResource("r", 2, 0),),
            marks=pytest.mark.row("--rate-limit-resource"),
        ),
    ],
)
def test_each_honoured_option_reaches_its_field_without_a_word(word: str, value: Any) -> None:
    options = parsed(word)
    field = word.removeprefix("--").partition("=")[0].replace("-", "_")

    assert value == getattr(options, field)
    assert () == options.warnings


@pytest.mark.row("--host-policy")
@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("gpu_0,numa-node=1", Setting("gpu_0", "numa-node", "1")),
        ("cpu,cpu-cores=0-3,8", Setting("cpu", "cpu-cores", "0-3,8")),
        ("mine,other=x", Setting("mine", "other", "x")),
    ],
)
def test_a_host_policy_has_a_name_and_settings(text: str, setting: Setting) -> None:
    assert (setting,) == parsed(f"--host-policy={text}").host_policy


@pytest.mark.parametrize("cores", ["", "x", "3-1", "0-", "-1", "0-99999999", "1;2"])
def test_a_list_of_cores_that_is_none_is_refused(cores: str) -> None:
    text = refused(f"--host-policy=cpu,cpu-cores={cores}")

    assert text.startswith('Bad option: "--host-policy".\n')
    assert cores in text
