"""Options from the command line, the environment and files, and those of traces."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.support import refusals
from zmqtriton.options import OptionError, Options, TraceOptions, parse, with_environment
from zmqtriton.options.kinds import Arity
from zmqtriton.options.sources import PREFIX, variable_of
from zmqtriton.options.table import OPTIONS_BY_NAME

# ----------------------------------------------------------------------------- sources
# Options of a file and of variables beside those of the command line.


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


refusal = partial(refusals.refusal, OptionError, started)


@pytest.mark.slow
def test_each_option_may_stand_in_a_file_and_in_a_variable() -> None:
    for name, option in OPTIONS_BY_NAME.items():
        in_file = f'{name} = ["x"]' if option.arity is Arity.REPEATABLE else f'{name} = "x"'
        variable = variable_of(name).removeprefix(PREFIX)

        cases: tuple[dict[str, Any], ...] = ({"file": in_file}, {variable: "1"})
        assert [] == [places for places in cases if "unrecognized" in problem_of(**places)]
        assert f"unrecognized option '{name}x' in {PATH}" in refusal(file=f"{name}x = 1")
        assert f"unrecognized variable '{PREFIX}{variable}X'" in refusal(**{f"{variable}X": "1"})


@pytest.mark.addons
def test_an_option_of_an_extra_that_is_left_out_is_refused_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zmqtriton.addons.add_ons", dict)
    for table in ("parser", "sources"):
        names = {n: o for n, o in OPTIONS_BY_NAME.items() if n != "zmq-door"}
        monkeypatch.setattr(f"zmqtriton.options.{table}.OPTIONS_BY_NAME", names)

    said = "the add-on 'door' is not installed"
    assert f"--zmq-door: {said}" == refusal("--zmq-door=true")
    assert f"--zmq-door: {said}" == refusal("--zmq-door")
    assert f"'zmq-door' in {PATH}, line 1: {said}" == refusal(file="zmq-door = true")
    assert f"{PREFIX}ZMQ_DOOR: {said}" == refusal(ZMQ_DOOR="true")


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
        ("config = 'x'", "A file cannot name another one: remove this line."),
        ("http-port == 1", f"{PATH} must be TOML: "),
        ("http-port = 1\nhttp-port = 2", f"{PATH} must be TOML: "),
        ("load-model = ['a']", "requires setting '--model-control-mode=explicit'"),
    ],
)
def test_a_file_is_checked_like_the_command_line(file: str, text: str) -> None:
    assert text in refusal(file=file)


def test_a_file_that_cannot_be_read_is_named() -> None:
    def fail(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    with pytest.raises(OptionError, match=f"--config: {PATH}: No such file or directory"):
        parse([REPOSITORY, f"--config={PATH}"], read_file=fail)
    with pytest.raises(OptionError, match="empty argument for --config"):
        parse([REPOSITORY, "--config="], read_file=fail)


# ------------------------------------------------------------------------------- trace
# The --trace-config settings put together.


def traced(*words: str) -> TraceOptions:
    return parse(["--model-repository=/models", *words]).trace


@pytest.mark.row("--trace-config")
def test_settings_add_up_to_one_description() -> None:
    trace = traced(
        "--trace-config=triton,file=/tmp/trace.json",
        "--trace-config=triton,log-frequency=50",
        "--trace-config=rate=100",
        "--trace-config=count=7",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=level=tensors",
        "--trace-config=mode=triton",
    )

    assert (
        TraceOptions(
            mode="triton",
            level=("TIMESTAMPS", "TENSORS"),
            rate=100,
            count=7,
            file="/tmp/trace.json",
            log_frequency=50,
        )
        == trace
    )


@pytest.mark.row("--trace-config")
@pytest.mark.parametrize(
    ("word", "text"),
    [
        (
            "--trace-config=level=X",
            'Bad option: "--trace-config level".\ninvalid value for trace level option: x',
        ),
        (
            "--trace-config=mode=foo",
            'Bad option: "--trace-config mode".\ninvalid value for trace mode option: foo. '
            'Available options are "triton" and "opentelemetry"',
        ),
        (
            "--trace-config=triton,log-frequency=x",
            'Bad option: "--trace-config triton,log-frequency".\nInvalid option value. Got x',
        ),
        (
            "--trace-config=triton,mode",
            'Bad option: "--trace-config".\n'
            "--trace-config option format is '<trace mode>,<setting>=<value>'. Got triton,mode",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_named(word: str, text: str) -> None:
    assert text == refusals.refusal(OptionError, traced, word)


def exporting(environment: dict[str, str], *words: str) -> tuple[tuple[str, str], ...]:
    options = parse(["--model-repository=/models", "--trace-config=mode=opentelemetry", *words])
    return with_environment(options, environment).trace.opentelemetry


@pytest.mark.row("--trace-config")
def test_the_exporters_numbers_may_be_variables() -> None:
    variables = {"OTEL_BSP_MAX_QUEUE_SIZE": "7", "OTEL_BSP_SCHEDULE_DELAY": "1.5"}
    option = "--trace-config=opentelemetry,bsp_max_queue_size=9"

    said = {"bsp_max_queue_size": "9", "bsp_schedule_delay": "1"}
    assert said == dict(exporting(variables, option))
    plain = parse(["--model-repository=/models"])
    assert plain == with_environment(plain, {"OTEL_BSP_MAX_QUEUE_SIZE": "x"})


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("bsp_max_queue_size", "abc", "Invalid option value. Got abc"),
        ("bsp_max_queue_size", "-1", "Must not be below 1. Got -1"),
        ("bsp_max_export_batch_size", "0", "Must not be below 1. Got 0"),
        (
            "bsp_schedule_delay",
            "99999999999",
            "Provided option value is out of bound. Got 99999999999",
        ),
    ],
)
def test_a_number_of_the_exporter_that_cannot_be_is_named_with_its_place(
    key: str, value: str, text: str
) -> None:
    option, name = f"--trace-config=opentelemetry,{key}={value}", f"OTEL_{key.upper()}"

    said = refusals.refusal(OptionError, exporting, {}, option)
    assert f'Bad option: "--trace-config opentelemetry,{key}".\n{text}' == said
    said = refusals.refusal(OptionError, exporting, {name: value})
    assert f'Bad option: "{name}".\n{text}' == said
