"""Options of a file and of variables beside those of the command line."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import pytest

from tests.conftest import ROOT
from zmqtriton.options import OptionError, Options, parse
from zmqtriton.options.kinds import Arity
from zmqtriton.options.report import describe_options
from zmqtriton.options.sources import PREFIX, variable_of
from zmqtriton.options.table import OPTIONS_BY_NAME

PATH = "/etc/zmqtriton.toml"
REPOSITORY = "--model-repository=/models"


def started(
    *words: str, file: str = "", usual: tuple[str, ...] = (), **environment: str
) -> Options:
    """Return the options of a command line, with a file at PATH and these variables."""
    variables = {PREFIX + name: value for name, value in environment.items()}
    config = [f"--config={PATH}"] if file else []
    texts = {PATH: file}
    return parse(
        [REPOSITORY, *config, *words],
        environment=variables,
        read_file=lambda path: texts.get(path, ""),
        usual=usual,
    )


def problem_of(**places: Any) -> str:
    """Return why a server would not start; "" if it would."""
    try:
        started(**places)
    except OptionError as error:
        return str(error)
    return ""


def refusal(**places: Any) -> str:
    with pytest.raises(OptionError) as caught:
        started(**places)
    return str(caught.value)


def test_values_of_a_file_are_those_of_the_command_line() -> None:
    file = """
        http-port = 9000
        exit-on-error = false
        reload = true
        metrics-interval-ms = 500.5
        id = "first"
        backend-config = ["python,stub-timeout-seconds=40", "python,a=b"]
        http-allowed-origin = "https://a"
        model-control-mode = "explicit"
        load-model = ["a", "b"]
        trace-config = "rate=5"
    """
    words = (
        "--http-port=9000",
        "--exit-on-error=false",
        "--reload",
        "--metrics-interval-ms=500.5",
        "--id=first",
        "--backend-config=python,stub-timeout-seconds=40",
        "--backend-config=python,a=b",
        "--http-allowed-origin=https://a",
        "--model-control-mode=explicit",
        "--load-model=a",
        "--load-model=b",
        "--trace-config=rate=5",
    )

    assert started(*words, f"--config={PATH}", file="#") == started(file=file)


def test_each_option_may_stand_in_a_file_and_in_a_variable() -> None:
    for name, option in OPTIONS_BY_NAME.items():
        in_file = f'{name} = ["x"]' if option.arity is Arity.REPEATABLE else f'{name} = "x"'
        variable = variable_of(name).removeprefix(PREFIX)

        cases: tuple[dict[str, Any], ...] = ({"file": in_file}, {variable: "1"})
        assert [] == [places for places in cases if "unrecognized" in problem_of(**places)]
        assert f"unrecognized option '{name}x' in {PATH}" in refusal(file=f"{name}x = 1")
        assert f"unrecognized variable '{PREFIX}{variable}X'" in refusal(**{f"{variable}X": "1"})


def test_the_command_line_counts_before_variables_and_these_before_the_file() -> None:
    file = "http-port = 1\ngrpc-port = 1\nmetrics-port = 1\nsagemaker-port = 1"
    usual = ("--sagemaker-port=4", "--vertex-ai-port=4")

    options = started(
        "--http-port=3", file=file, usual=usual, HTTP_PORT="2", GRPC_PORT="2", METRICS_PORT=""
    )

    assert (3, 2, 1, 1, 4) == (
        options.http_port,
        options.grpc_port,
        options.metrics_port,
        options.sagemaker_port,
        options.vertex_ai_port,
    )


def test_an_option_that_may_be_repeated_is_taken_whole_from_one_place() -> None:
    file = 'model-store = ["/of-file"]\nstub-user = ["a", "b"]\nmodel-env = ["A"]'

    options = started("--stub-user=c", file=file, MODEL_ENV="B\n\nC D\n")

    assert ("/models",) == options.model_repository
    assert ("c",) == options.stub_user
    assert ("B", "C D") == options.model_env


def test_the_place_of_each_option_is_told() -> None:
    options = started(
        "--http-port=3",
        file='http-port = 1\ncache-config = "local,size=1048576"\ngrpc-port = 8001',
        usual=("--metrics-port=4",),
        TRACE_CONFIG="rate=5",
    )

    rows = {row["option"]: row["source"] for row in describe_options(options, {})}

    assert "" == rows["id"]
    assert ("command line", "environment", PATH, PATH, "default of the command") == tuple(
        rows[name]
        for name in ("http-port", "trace-config", "cache-config", "grpc-port", "metrics-port")
    )


def test_a_variable_may_name_the_file() -> None:
    options = parse(
        [],
        environment={f"{PREFIX}CONFIG": PATH},
        read_file={PATH: 'model-repository = "/m"'}.__getitem__,
    )

    assert (PATH, ("/m",)) == (options.config, options.model_repository)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("\nhttp-port = 70000", f'Bad option: "http-port" in {PATH}, line 2.\nPort must be in the'),
        ("http-port = true", f'Bad option: "http-port" in {PATH}, line 1.\nInvalid option value.'),
        ("http-port = [1, 2]", "line 1.\nOnly options that may be repeated have an array."),
        ("load-model = [[1]]", "line 1.\nA string, a number or a boolean is expected."),
        ("id = 1979-05-27", "line 1.\nA string, a number or a boolean is expected."),
        (
            "[http]\nport = 1",
            f"'http' in {PATH}, line 1 is a table, and options stand in no table; ",
        ),
        ("[http]\nport = 1", "did you mean 'http-port'?"),
        ("http_port = 1", "did you mean 'http-port'?"),
        ("config = 'x'", "A file cannot name another one."),
        ("http-port == 1", f"{PATH} is no TOML: "),
        ("http-port = 1\nhttp-port = 2", f"{PATH} is no TOML: "),
        ("load-model = ['a']", "requires setting '--model-control-mode=explicit'"),
    ],
)
def test_a_file_is_checked_like_the_command_line(file: str, text: str) -> None:
    assert text in refusal(file=file)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("HTTP_PORT", "x", f'Bad option: "{PREFIX}HTTP_PORT".\nInvalid option value. Got x'),
        ("HTP_PORT", "1", f"did you mean '{PREFIX}HTTP_PORT'?"),
    ],
)
def test_a_variable_is_checked_like_the_command_line(name: str, value: str, text: str) -> None:
    assert text in refusal(**{name: value})


def test_a_mistake_is_one_though_the_command_line_has_the_option() -> None:
    with pytest.raises(OptionError, match="Port must be in the range"):
        started("--http-port=1", file="http-port = 70000")


def test_a_file_that_cannot_be_read_is_named() -> None:
    def fail(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    with pytest.raises(OptionError, match=f"--config: {PATH}: No such file or directory"):
        parse([REPOSITORY, f"--config={PATH}"], read_file=fail)
    with pytest.raises(OptionError, match="empty argument for --config"):
        parse([REPOSITORY, "--config="], read_file=fail)


def test_variables_of_a_service_of_kubernetes_are_no_options() -> None:
    environment = {
        "ZMQTRITON_HTTP_PORT": "tcp://10.0.0.1:8000",
        "ZMQTRITON_SERVICE_HOST": "10.0.0.1",
    }

    assert parse([REPOSITORY], environment=environment) == parse([REPOSITORY])


def test_the_file_of_the_documentation_is_read() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    [block] = re.findall(r"(?:^    .*\n)+", page, re.MULTILINE)

    options = started(file=textwrap.dedent(block))

    assert (9000, False) == (options.http_port, options.exit_on_error)
