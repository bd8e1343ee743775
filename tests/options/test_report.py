from __future__ import annotations

from typing import Any

from zmqtriton.options import parse
from zmqtriton.options.report import describe_options


def changed(*words: str, **bound: Any) -> dict[str, Any]:
    rows = describe_options(parse(["--model-repository=/m", *words]), bound)
    return {row["option"]: row["value"] for row in rows if not row["is_default"]}


def test_options_that_nobody_has_changed_are_defaults() -> None:
    assert {"model-repository": ["/m"]} == changed()


def test_values_are_written_as_on_the_command_line() -> None:
    words = (
        "--http-port=9000",
        "--exit-on-error=false",
        "--load-model=a",
        "--load-model=b",
        "--model-control-mode=explicit",
        "--backend-config=python,stub-timeout-seconds=40",
        "--rate-limit-resource=R1:4:0",
        "--model-load-gpu-limit=0:0.5",
    )

    rows = changed(*words)

    assert (9000, False, ["a", "b"]) == tuple(
        rows[name] for name in ("http-port", "exit-on-error", "load-model")
    )
    assert ["python,stub-timeout-seconds=40"] == rows["backend-config"]
    assert (["R1:4:0"], ["0:0.5"]) == (
        rows["rate-limit-resource"],
        rows["model-load-gpu-limit"],
    )


def test_a_port_that_was_found_is_told() -> None:
    rows = changed("--http-port=0", "--grpc-port=0", http_port=43210)

    assert (43210, 0) == (rows["http-port"], rows["grpc-port"])


def test_secrets_are_hidden() -> None:
    words = (
        "--http-restricted-api=model-repository,logging:x-key=SECRET",
        "--cache-config=local,size=1048576",
        "--backend-config=python,api_token=SECRET",
        "--trace-config=mode=opentelemetry",
        "--trace-config=opentelemetry,headers=a=SECRET",
    )

    rows = changed(*words)

    assert "SECRET" not in str(rows)
    assert ["model-repository,logging:x-key=***"] == rows["http-restricted-api"]
    assert ["python,api_token=***"] == rows["backend-config"]
    assert ["local,size=1048576"] == rows["cache-config"]
    assert "mode=opentelemetry" in rows["trace-config"]
