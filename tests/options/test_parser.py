"""The command line as a whole: what Triton's own takes, what it refuses, and what is ours."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.refusals import refusal
from zmqtriton.commit import full_version
from zmqtriton.options import HelpRequested, OptionError, Options, Restriction, Setting, parse
from zmqtriton.options.result import DEFAULTS
from zmqtriton.options.table import OPTIONS_BY_NAME

#: As `tritonserver --help` of 2.51 lists them, and what newer ones added.
TRITON_OPTIONS = """
    id exit-timeout-secs log-verbose log-info log-warning log-error log-format log-file model-store
    model-repository exit-on-error disable-auto-complete-config strict-readiness model-control-mode
    repository-poll-secs load-model model-config-name model-load-thread-count
    model-load-retry-count model-namespacing enable-peer-access allow-http http-address http-port
    reuse-http-port http-header-forward-pattern http-thread-count http-restricted-api
    http-max-input-size allow-grpc grpc-address grpc-port reuse-grpc-port
    grpc-header-forward-pattern grpc-infer-allocation-pool-size grpc-infer-thread-count
    grpc-max-response-pool-size grpc-use-ssl grpc-use-ssl-mutual grpc-server-cert grpc-server-key
    grpc-root-cert grpc-infer-response-compression-level grpc-keepalive-time
    grpc-keepalive-timeout grpc-keepalive-permit-without-calls grpc-http2-max-pings-without-data
    grpc-http2-min-recv-ping-interval-without-data grpc-http2-max-ping-strikes
    grpc-max-connection-age grpc-max-connection-age-grace grpc-restricted-protocol
    allow-client-shm allow-sagemaker sagemaker-port sagemaker-safe-port-range
    sagemaker-thread-count allow-vertex-ai vertex-ai-port vertex-ai-thread-count
    vertex-ai-default-model allow-metrics allow-gpu-metrics allow-cpu-metrics metrics-address
    metrics-port metrics-interval-ms metrics-config trace-config backend-directory backend-config
    repoagent-directory cache-config cache-directory rate-limit rate-limit-resource
    pinned-memory-pool-byte-size cuda-memory-pool-byte-size cuda-virtual-address-size
    min-supported-compute-capability buffer-manager-thread-count host-policy model-load-gpu-limit
    strict-model-config response-cache-byte-size trace-file trace-level trace-rate trace-count
    trace-log-frequency
""".split()


def parsed(*words: str) -> Options:
    """The options with a repository given, which every command line must have."""
    return parse(["--model-repository=/models", *words])


def refused(*words: str) -> str:
    return refusal(OptionError, parse, ["--model-repository=/models", *words])


@pytest.mark.extra("clouds")
def test_every_option_of_triton_is_known() -> None:
    assert [] == [name for name in TRITON_OPTIONS if name not in OPTIONS_BY_NAME]


def test_every_row_of_the_table_ends_in_a_field_or_a_decision() -> None:
    decided = {
        "disable_auto_complete_config",
        "response_cache_byte_size",
        "trace_config",
        "trace_deprecated",
    }

    targets = {option.field_name for option in OPTIONS_BY_NAME.values()}

    assert decided == targets - DEFAULTS.keys()
    assert {"origins", "trace", "warnings"} == DEFAULTS.keys() - targets


@pytest.mark.row("--strict-model-config")
def test_the_command_line_of_the_guide_is_taken_with_its_typing_error() -> None:
    options = parse(
        "--model-repository=/model_dir --strict-model-config=false --model-control-mode=poll "
        "--repository-poll-secs=10 --backend-config=tensorflow,version=2 --log-verbose=1=1".split()
    )

    assert (("/model_dir",), "poll") == (options.model_repository, options.model_control_mode)
    assert 10 == options.repository_poll_secs
    assert (Setting("tensorflow", "version", "2"),) == options.backend_config
    assert 1 == options.log_verbose
    assert not options.strict_model_config
    assert (
        "Warning: '--strict-model-config' has been deprecated! "
        "Please use '--disable-auto-complete-config' instead.",
    ) == options.warnings


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(
            ["--model-repository=/b", "--model-store", "/a", "--model-repository=/b"],
            {"model_repository": ("/models", "/b", "/a")},
            id="repeated repositories add up in order and once each",
            marks=pytest.mark.row("--model-repository", "--model-store"),
        ),
        pytest.param(
            ["--model-rep=/x"],
            {"model_repository": ("/models", "/x")},
            id="the beginning of one name stands for it",
        ),
        pytest.param(
            ["--repository-poll-secs=10"],
            {"repository_poll_secs": 0},
            id="polling seconds do not count in mode none",
            marks=pytest.mark.row("--repository-poll-secs"),
        ),
        pytest.param(
            ["--model-control-mode=explicit"],
            {"repository_poll_secs": 0},
            id="polling seconds do not count in mode explicit",
            marks=pytest.mark.row("--model-control-mode"),
        ),
        pytest.param(
            ["--model-control-mode=POLL"],
            {"repository_poll_secs": 15},
            id="polling seconds count in mode poll",
            marks=pytest.mark.row("--model-control-mode", "--repository-poll-secs"),
        ),
        pytest.param(
            ["--model-control-mode=explicit", *(f"--load-model={name}" for name in "bab")],
            {"load_model": ("b", "a")},
            id="models to load add up once each",
            marks=pytest.mark.row("--load-model"),
        ),
        pytest.param(
            ["--model-control-mode=explicit", "--load-model=*"],
            {"load_model": ("*",)},
            id="all models may be loaded",
            marks=pytest.mark.row("F03", "--load-model"),
        ),
        pytest.param(
            ["--model-file=/a=b/c.py", "--model-file=d=/e.py"],
            {"model_file": (("c", "/a=b/c.py"), ("d", "/e.py"))},
            id="a file is the model of its name or of another",
        ),
        pytest.param(
            ["--http-address=127.0.0.1"],
            {"metrics_address": "127.0.0.1"},
            id="metrics listen where HTTP does",
            marks=pytest.mark.row("--metrics-address"),
        ),
        pytest.param(
            ["--metrics-address=::1"],
            {"metrics_address": "::1"},
            id="metrics may listen elsewhere",
            marks=pytest.mark.row("--metrics-address"),
        ),
        pytest.param(
            ["--allow-metrics=false"],
            {"allow_gpu_metrics": False, "allow_cpu_metrics": False},
            id="without metrics nothing is measured",
            marks=pytest.mark.row("--allow-metrics", "--allow-gpu-metrics", "--allow-cpu-metrics"),
        ),
        pytest.param(
            ["--disable-auto-complete-config"],
            {"strict_model_config": True},
            id="auto-completion ends with the newer option",
            marks=pytest.mark.row("E01", "--disable-auto-complete-config"),
        ),
        pytest.param(
            ["--strict-model-config=true"],
            {"strict_model_config": True},
            id="auto-completion ends with the older option",
            marks=pytest.mark.row("E01", "--strict-model-config"),
        ),
        pytest.param(
            ["--log-format=ISO8601"],
            {"log_format": "ISO8601"},
            id="the times of the log may be of ISO 8601",
            marks=pytest.mark.row("--log-format"),
        ),
        pytest.param(
            ["--log-format=json"],
            {"log_format": "json"},
            id="the log may be JSON",
            marks=pytest.mark.row("--log-format"),
        ),
        pytest.param(
            ["--rate-limit=EXECUTION_COUNT"],
            {"rate_limit": "execution_count", "warnings": ()},
            id="the mode of the rate limiter may be in capitals",
            marks=pytest.mark.row("--rate-limit"),
        ),
    ],
)
def test_words_become_options(words: list[str], expected: dict[str, Any]) -> None:
    options = parsed(*words)

    assert expected == {name: getattr(options, name) for name in expected}


@pytest.mark.row("--log-verbose")
@pytest.mark.parametrize(
    ("text", "value"), [("1=1", 1), ("true", 1), ("FALSE", 0), (" 2x", 2), ("+3", 3)]
)
def test_a_verbosity_is_read_up_to_where_its_digits_end(text: str, value: int) -> None:
    assert value == parsed(f"--log-verbose={text}").log_verbose


INTEGER = 'Bad option: "--exit-timeout-secs".\n'
BOOLEAN = 'Bad option: "--allow-http".\ninvalid value for bool option: '


@pytest.mark.parametrize(
    ("words", "text"),
    [
        *(([f"--allow-http={word}"], BOOLEAN + word) for word in ("no", "yes", "", "2", "truee")),
        *(
            ([f"--exit-timeout-secs={word}"], f"{INTEGER}Invalid option value. Got {word}")
            for word in ("abc", "", "x1", "-")
        ),
        *(
            (
                [f"--exit-timeout-secs={word}"],
                f"{INTEGER}Provided option value is out of bound. Got {word}",
            )
            for word in ("2147483648", "-2147483649", "9" * 5000)
        ),
        *(
            (
                [f"--http-port={word}"],
                f'Bad option: "--http-port".\nPort must be in the range 0 to 65535. Got {word}',
            )
            for word in ("70000", "-1")
        ),
        *(([word], f"Unexpected argument: {word}") for word in ("extra", "--", "-")),
        (["--http-port"], "option '--http-port' requires an argument\n"),
        (
            ["--model-repositry=/x"],
            "unrecognized option '--model-repositry'; did you mean '--model-repository'?\n"
            "Try 'zmqtriton --help' for all options.",
        ),
        (["--qqqq"], "unrecognized option '--qqqq'\n"),
        (["-http-port=1"], "unrecognized option '-http-port'; did you mean '--http-port'?"),
        (
            ["--log-f=x"],
            "option '--log-f=x' is ambiguous; possibilities: '--log-format' '--log-file'\n",
        ),
        pytest.param(
            ["--load-model=a"],
            "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as "
            "well.",
            marks=pytest.mark.row("--load-model"),
        ),
        pytest.param(
            ["--cache-config=local,size=1", "--cache-config=redis,host=x"],
            "found multiple cache configurations, but only a single cache is currently supported",
            marks=pytest.mark.row("--cache-config"),
        ),
        pytest.param(
            [
                "--model-control-mode=explicit",
                "--load-model=*",
                "--load-model=a",
            ],
            "Wildcard model name '*' must be the ONLY startup model if specified at all.",
            marks=pytest.mark.row("F03", "--load-model"),
        ),
        pytest.param(
            ["--log-format=foo"],
            'Bad option: "--log-format".\ninvalid argument for --log-format\n'
            "Any of: default, ISO8601, json.",
            marks=pytest.mark.row("--log-format"),
        ),
        (
            ["--cache-config=local,bytes=1"],
            "Failed to initialize LocalCache: config didn't contain a valid 'size' field.",
        ),
        (
            ["--cache-config=local,size=1M"],
            "Failed to initialize LocalCache: '1M' must be a size in bytes",
        ),
        (
            ["--cache-config=redis,host=x"],
            "unable to find 'libtritoncache_redis.so' for cache. "
            "Searched: /opt/tritonserver/caches",
        ),
        pytest.param(
            ["--cache-config=local,size=1", "--response-cache-byte-size=3"],
            "Error: Incompatible flags --response-cache-byte-size and --cache-config",
            marks=pytest.mark.row("--response-cache-byte-size"),
        ),
        (
            ["--http-restricted-api=health:a=1", "--http-restricted-api=trace,health:b=2"],
            'Bad option: "--http-restricted-api".\n'
            "restricted api 'health' can not be specified in multiple config groups",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_be_meant_is_refused_with_its_reason(words: list[str], text: str) -> None:
    assert refused(*words).startswith(text)


@pytest.mark.row("--model-repository")
@pytest.mark.parametrize("words", [[], ["--http-port=1"], ["--model-repository="]])
def test_without_a_repository_there_is_nothing_to_serve(words: list[str]) -> None:
    with pytest.raises(OptionError, match=r"^--model-repository must be specified$"):
        parse(words)


@pytest.mark.row("--http-port", "--grpc-port", "--metrics-port")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--http-port=9000", "--grpc-port=9000"],
            "HTTP requests and GRPC requests at the same address and port 0.0.0.0:9000",
        ),
        (
            ["--metrics-port=8000"],
            "HTTP requests and metrics requests at the same address and port 0.0.0.0:8000",
        ),
        (
            ["--grpc-port=8000", "--grpc-address=127.0.0.1"],
            "HTTP requests and GRPC requests at the same address and port 0.0.0.0:8000",
        ),
    ],
)
def test_two_endpoints_on_one_port_are_both_named(words: list[str], text: str) -> None:
    assert f"The server cannot listen to {text}" == refused(*words)


@pytest.mark.row("--allow-http")
@pytest.mark.parametrize(
    "words",
    [
        ["--http-port=9000", "--grpc-port=9000", "--allow-grpc=false"],
        ["--http-port=0", "--grpc-port=0", "--metrics-port=0"],
        [
            "--http-address=127.0.0.1",
            "--grpc-address=127.0.0.2",
            "--http-port=9000",
            "--grpc-port=9000",
        ],
    ],
)
def test_ports_that_do_not_meet_are_no_collision(words: list[str]) -> None:
    parsed(*words)


@pytest.mark.row("--disable-auto-complete-config")
def test_the_newer_option_for_auto_completion_wins_with_a_warning() -> None:
    options = parsed("--disable-auto-complete-config", "--strict-model-config=false")

    assert options.strict_model_config
    assert (
        "Warning: Overriding deprecated '--strict-model-config' from False to True in favor of "
        "'--disable-auto-complete-config'!"
    ) == options.warnings[-1]


@pytest.mark.row("--allow-client-shm")
@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ([], False),
        (["--http-address=127.0.0.1"], False),
        (["--http-address=127.0.0.1", "--grpc-address=::1"], True),
        (["--http-address=localhost", "--allow-grpc=false"], True),
        (["--allow-client-shm=true"], True),
        (
            ["--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--allow-client-shm=false"],
            False,
        ),
    ],
)
def test_client_shared_memory_is_for_loopback_unless_told(words: list[str], allowed: bool) -> None:
    assert allowed == parsed(*words).allow_client_shm


@pytest.mark.row("--backend-config")
def test_settings_of_a_backend_are_its_own_over_the_global_ones() -> None:
    options = parsed(
        "--backend-config=default-max-batch-size=2",
        "--backend-config=python,stub-timeout-seconds=60",
        "--backend-config=python,stub-timeout-seconds=30",
        "--backend-config=python,stub-timeout-seconds=60",
        "--backend-config=tensorflow,version=2",
    )

    assert {
        "default-max-batch-size": "2",
        "stub-timeout-seconds": "60",
    } == options.backend_settings("python")


@pytest.mark.row("--metrics-config")
@pytest.mark.parametrize(
    ("word", "text"),
    [
        (
            "--backend-config=,a=b",
            "No backend specified. --backend-config option format is "
            "<backend name>,<setting>=<value> or <setting>=<value>. Got ,a=b",
        ),
        (
            "--backend-config=a",
            "--backend-config option format is '<backend name>,<setting>=<value>'. Got a",
        ),
        (
            "--backend-config=python,=x",
            "--backend-config option format is '<backend name>,<setting>=<value>'. Got python,=x",
        ),
        (
            "--cache-config=size=1",
            "No cache specified. --cache-config option format is "
            "<cache name>,<setting>=<value>. Got size=1",
        ),
        (
            "--metrics-config=a,b=c",
            "--metrics-config option format is <setting>=<value>. Got a,b=c",
        ),
        (
            "--metrics-config=labels=model=x",
            "--metrics-config labels: metrics of the server have a label 'model': use another "
            "name. Got labels=model=x",
        ),
        (
            "--host-policy=a=b",
            "--host-policy option format is '<policy name>,<setting>=<value>'. Got a=b",
        ),
        (
            "--rate-limit-resource=a",
            "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
            "'<resource_name>:<count>'. Got a",
        ),
        (
            "--cuda-memory-pool-byte-size=1",
            "Cannot parse pair option due to incorrect number of inputs.--<pair option> argument "
            "requires format <first>:<second>. Found: 1",
        ),
        (
            "--http-restricted-api=health",
            "--http-restricted-api option format is '<config name>:<setting>=<value>'. Got health",
        ),
        ("--http-restricted-api=foo:k=v", "unknown restricted api 'foo'"),
        ("--grpc-restricted-protocol=foo:k=v", "unknown restricted protocol 'foo'"),
        (
            "--model-control-mode=x",
            "invalid argument for --model-control-mode\nAny of: none, poll, explicit.",
        ),
        ("--rate-limit=x", "invalid argument for --rate-limit\nAny of: execution_count, off."),
        *(
            (
                f"--model-file={word}",
                f"--model-file must be a Python file, or NAME=FILE. Got {word}",
            )
            for word in ("/m/a.txt", "m=", "=/m/a.py")
        ),
        ("--model-config-name=", "Error: empty argument for --model-config-name"),
        (
            "--grpc-max-response-pool-size=0",
            "Error: --grpc-max-response-pool-size must be greater than 0.",
        ),
        ("--metrics-interval-ms=x", "Invalid option value. Got x"),
    ],
)
def test_a_value_of_the_wrong_form_is_refused_as_triton_does(word: str, text: str) -> None:
    assert f'Bad option: "{word.partition("=")[0]}".\n{text}' == refused(word)


@pytest.mark.row("--response-cache-byte-size")
def test_the_older_option_for_the_cache_is_turned_into_the_newer() -> None:
    options = parsed("--response-cache-byte-size=1024")

    assert (Setting("local", "size", "1024"),) == options.cache_config
    assert "--cache-config=local,size=1024" in options.warnings[-1]


@pytest.mark.row("--grpc-use-ssl")
@pytest.mark.parametrize("service", ["http", "grpc"])
def test_encryption_is_refused_without_the_files_for_it(service: str) -> None:
    cert, key = f"--{service}-server-cert=c", f"--{service}-server-key=k"

    for words, missing in (
        ((f"--{service}-use-ssl=true", key), "server-cert"),
        ((f"--{service}-use-ssl=true", cert), "server-key"),
        ((f"--{service}-use-ssl-mutual=true", cert, key), "root-cert"),
    ):
        text = f"--{service}-use-ssl requires setting '--{service}-{missing}' as well."
        assert text == refused(*words)


@pytest.mark.row("L09")
def test_a_token_and_a_key_cannot_share_a_header() -> None:
    key = "--http-restricted-api=logging:Authorization=Bearer x"

    assert parsed(key).http_restricted_api
    assert parsed("--tokens=/t", "--grpc-restricted-protocol=trace:authorization=x").tokens
    assert (
        "Error: '--tokens' takes the header 'authorization', so '--http-restricted-api' needs "
        "another one."
    ) == refused("--tokens=/t", key)


@pytest.mark.row("--grpc-restricted-protocol")
def test_grpc_restrictions_ask_for_a_prefixed_header() -> None:
    read = OPTIONS_BY_NAME["grpc-restricted-protocol"].read

    assert Restriction(("health", "inference"), "triton-grpc-protocol-admin", "k=1") == read(
        "health,inference:admin=k=1"
    )


def test_version_is_that_of_the_code() -> None:
    with pytest.raises(HelpRequested, match=f"^zmqtriton {re.escape(full_version())}$"):
        parse(["--version"])


# ------------------------------------------------------------------- models on demand


_EXPLICIT = ("--model-repository=/m", "--model-control-mode=explicit")
#: Options that standard's add-ons declare.
OF_ADD_ONS = [
    ([*_EXPLICIT, "--unload-idle-after=5"], "requires setting '--load-on-demand' as well"),
    ([*_EXPLICIT, "--model-memory-budget=5"], "requires setting '--load-on-demand' as well"),
    ([*_EXPLICIT, "--gpu-memory-budget=0:5"], "requires setting '--load-on-demand' as well"),
    ([*_EXPLICIT, "--model-memory-budget=-5"], "a number of bytes, such as .* Got -5"),
    ([*_EXPLICIT, "--gpu-memory-budget=0:5X"], "a number of bytes, such as .* Got 5X"),
    ([*_EXPLICIT, "--gpu-memory-budget=70G"], "requires format <first>:<second>"),
    ([*_EXPLICIT, "--gpu-memory-budget=-1:70G"], "Must not be negative. Got -1"),
    (
        [*_EXPLICIT, "--load-on-demand", "--unload-idle-after=-1"],
        "Must not be negative. Got -1",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--model-repository=/m", "--load-on-demand"], "'--model-control-mode=explicit' as well"),
        (["--model-repository=/m", "--one-by-one"], "requires setting '--take-over' as well"),
        *(pytest.param(*row, marks=[pytest.mark.addons]) for row in OF_ADD_ONS),
        (
            [*_EXPLICIT, "--load-on-demand", "--load-on-demand-timeout=-1"],
            "Must not be negative. Got -1",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse(arguments)


# ----------------------------------------------------- defaults that follow from others


REPOSITORY = "--model-repository=/models"


@pytest.mark.row("D14")
@pytest.mark.parametrize(
    ("words", "is_on"),
    [
        ([], False),
        (["--http-address=127.0.0.1"], False),
        (["--grpc-address=127.0.0.1"], True),
        (["--grpc-address=::1", "--grpc-reflection=false"], False),
        (["--grpc-reflection=true"], True),
    ],
)
def test_reflection_is_for_loopback_unless_told(words: list[str], is_on: bool) -> None:
    assert is_on == parse([REPOSITORY, *words]).grpc_reflection


def test_only_the_traces_own_setting_is_a_level() -> None:
    words = ("opentelemetry,level=off", "level=TENSORS", "opentelemetry,level=high")

    trace = parsed(*(f"--trace-config={word}" for word in words)).trace

    assert ("TENSORS",) == trace.level
