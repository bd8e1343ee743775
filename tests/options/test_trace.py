"""The --trace-config settings put together."""

from __future__ import annotations

import pytest

from zmqtriton.options import OptionError, TraceOptions, parse, with_environment


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


def test_settings_for_opentelemetry_are_kept_in_order() -> None:
    trace = traced(
        "--trace-config=mode=OpenTelemetry",
        "--trace-config=opentelemetry,url=localhost:4318/v1/traces",
        "--trace-config=opentelemetry,resource=service.name=demo",
    )

    assert "opentelemetry" == trace.mode
    assert (
        ("url", "localhost:4318/v1/traces"),
        ("resource", "service.name=demo"),
    ) == trace.opentelemetry


def test_off_wins_wherever_it_stands() -> None:
    assert () == traced("--trace-config=level=OFF", "--trace-config=level=TIMESTAMPS").level


def test_an_older_option_gives_way_to_the_newer() -> None:
    options = parse(["--model-repository=/m", "--trace-config=rate=5", "--trace-rate=9"])

    assert 5 == options.trace.rate
    assert (
        "Warning: '--trace-rate' has been deprecated and will be removed in future releases. "
        "Please use '--trace-config rate=<rate value>' instead."
    ) in options.warnings


def test_an_older_option_alone_counts() -> None:
    assert TraceOptions(file="/t", level=("TIMESTAMPS",)) == traced(
        "--trace-file=/t", "--trace-level=max"
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
    with pytest.raises(OptionError) as caught:
        traced(word)

    assert text == str(caught.value)


def exporting(environment: dict[str, str], *words: str) -> tuple[tuple[str, str], ...]:
    mode = "--trace-config=mode=opentelemetry"
    options = parse(["--model-repository=/models", mode, *words])
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
    with pytest.raises(OptionError) as caught:
        exporting({}, f"--trace-config=opentelemetry,{key}={value}")
    assert f'Bad option: "--trace-config opentelemetry,{key}".\n{text}' == str(caught.value)

    name = f"OTEL_{key.upper()}"
    with pytest.raises(OptionError) as caught:
        exporting({name: value})
    assert f'Bad option: "{name}".\n{text}' == str(caught.value)
