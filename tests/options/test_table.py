"""The table of options, their help, and the report of their values."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.options.test_parser import parsed, refused
from tests.support.refusals import refusal
from zmqtriton.main import main
from zmqtriton.options import HelpRequested, RateLimitResource, Setting, parse
from zmqtriton.options.report import describe_options
from zmqtriton.options.table import OPTIONS_BY_NAME
from zmqtriton.options.values import ModelFile

# ------------------------------------------------------------------------------- table
# Warnings about options that are not honoured, and the values of all others.


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
        pytest.param("--reload=true", True, marks=pytest.mark.addons),
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
    assert value == options.value(word.removeprefix("--").partition("=")[0].replace("-", "_"))
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


# -------------------------------------------------------------------------------- help
# The output of `--help`, and guesses for words that are no options.


def about(*words: str) -> str:
    return refusal(HelpRequested, parse, [*words])


@pytest.fixture(scope="module")
def text() -> str:
    return about("--help")


@pytest.mark.row("--help")
def test_help_shows_each_group_option_and_default(text: str) -> None:
    assert [] == [name for name in OPTIONS_BY_NAME if f"\n  --{name}" not in text]
    assert "\nModel Repository:\n" in text
    assert "Port to listen on. Default is 8000." in text
    assert "{" not in text
    assert "a load on demand. Default is 60.\n" in text


def test_what_has_a_default_does_not_name_another(text: str) -> None:
    lines = [" ".join(option.split()) for option in re.split(r"\n  --", text)]

    assert [] == [line for line in lines if "y default" in line and "Default is" in line]


@pytest.mark.parametrize("words", [["--help", "openai"], ["-h", "OpenAI"], ["--help=openai"]])
@pytest.mark.extra("openai")
def test_help_is_about_a_word(words: list[str], text: str) -> None:
    said = about(*words)

    assert "\n  --allow-openai\n        Serve OpenAI's API" in said
    assert "\n  --http-restricted-api " in said, "its help has the word"
    assert "--http-port" not in said
    assert len(said) < len(text) / 10


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("tls", "--http-use-ssl"),
        ("HTTPS", "--grpc-use-ssl"),
        ("auth", "--tokens"),
        ("authentication", "--http-restricted-api"),
        ("cors", "--http-allowed-origin"),
        ("prometheus", "--metrics-port"),
        ("cold", "--unload-idle-after"),
    ],
)
@pytest.mark.addons
def test_help_knows_the_words_of_others(word: str, option: str) -> None:
    assert f"\n  {option}" in about("--help", word)


@pytest.mark.extra("fleet")
def test_help_about_nothing_names_the_groups() -> None:
    assert "Nothing has the word 'zzz'. Groups: Server, Announcements, " in about("--help", "zzz")


@pytest.mark.parametrize("command", ["new", "demo", "example", "check", "simulate"])
@pytest.mark.addons
@pytest.mark.extra("authoring", "bench", "fleet")
def test_help_tells_of_each_command(command: str, text: str) -> None:
    assert f"\n       zmqtriton {command} " in text


@pytest.mark.parametrize("command", ["new", "demo", "example", "check", "simulate"])
@pytest.mark.parametrize("word", ["-h", "--help"])
@pytest.mark.addons
@pytest.mark.extra("authoring", "bench", "canaries")
def test_each_command_has_help_of_its_own(
    command: str, word: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main([command, word])
    except SystemExit as end:
        status = int(end.code or 0)

    printed = capsys.readouterr()
    assert (0, "") == (status, printed.err)
    assert re.match(f"[Uu]sage: zmqtriton {command} ", printed.out)
    assert len(printed.out) < len(text) / 2


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        pytest.param("chek", "zmqtriton check", marks=pytest.mark.addons),
        pytest.param("examples", "zmqtriton example", marks=pytest.mark.extra("authoring")),
        ("/srv/models", "--model-repository=/srv/models"),
        ("models", "--model-repository=models"),
        ("http-port=80", "--http-port=80"),
    ],
)
def test_an_argument_that_is_no_option_is_guessed_at(word: str, meant: str) -> None:
    assert f"Unexpected argument: {word}; did you mean '{meant}'?" == refused(word).split("\n")[0]


def test_who_says_nothing_is_told_what_to_begin_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main([])

    assert (
        "--model-repository must be specified\n"
        "Try 'zmqtriton demo' for a first look, 'zmqtriton new NAME' for a model of your own, "
        "'zmqtriton --help' for all options.\n"
    ) == capsys.readouterr().err


# ------------------------------------------------------------------------------ report


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
    expected = {
        "http-restricted-api": ["model-repository,logging:x-key=***"],
        "backend-config": ["python,api_token=***"],
        "cache-config": ["local,size=1048576"],
    }
    assert expected == {name: rows[name] for name in expected}
    assert "mode=opentelemetry" in rows["trace-config"]
