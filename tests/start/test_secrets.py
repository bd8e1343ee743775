"""Secrets, the guard, actions, and the GPUs of the machine."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.supervisor.settings import settings as server_settings
from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.host import gpus
from zmqtriton.host.gpus import (
    Gpu,
    NvmlError,
    list_nvml_gpus,
    used_memory_share,
)
from zmqtriton.options import Options, Setting, TraceOptions, parse
from zmqtriton.roles import LOCAL_SERVICES
from zmqtriton.start import secrets
from zmqtriton.start.secrets import SecretError
from zmqtriton.supervisor.machine.action_runner import indented
from zmqtriton.supervisor.service import call_ready
from zmqtriton_floor import token_file, wire
from zmqtriton_floor.settings.frontends import Restriction

# ----------------------------------------------------------------------------- secrets
# Keys of restricted APIs: where they may stand, and who is told.


def key_of(value: str) -> str:
    """Return what a key given so comes to."""
    options = parse(["--model-repository=/m", f"--http-restricted-api=trace:k={value}"])
    return secrets.resolve_key_files(options).http_restricted_api[0].value


def test_a_key_may_stand_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("se=cret\n")

    assert "se=cret" == key_of(f"@{tmp_path}/key")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert "se=cret" == key_of("@key")


def test_a_key_that_begins_like_a_file_is_written_with_two_signs() -> None:
    assert ("plain", "@home", "a@b") == (key_of("plain"), key_of("@@home"), key_of("a@b"))


@pytest.mark.parametrize("content", ["", "\n", "two\nlines", "x" * 5000, "\x00", None])
def test_a_file_without_one_key_is_an_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content)

    with pytest.raises(SecretError, match=r"^--http-restricted-api: .*/key: "):
        key_of(f"@{tmp_path}/key")


@pytest.mark.extra("door", "fleet")
def test_who_checks_a_key_is_told_it_and_nobody_else() -> None:
    settings = server_settings(
        http_restricted_api=(Restriction(("trace",), "k", "http-secret"),),
        grpc_restricted_protocol=(Restriction(("trace",), "k", "grpc-secret"),),
        zmq_door_restricted=(Restriction(("trace",), "k", "local-secret"),),
        tokens="/path/of/tokens",
        announce=("https://fleet.example/announcing-secret",),
        announce_token_file="/announcer/token",
        cache_config=(Setting("local", "size", "1"),),
        **{f"{s}_{f}": f"/{s}/{f}" for s in ("http", "grpc") for f in _FILES},
        **{f"{s}_{o}": True for s in ("http", "grpc") for o in ("use_ssl", "use_ssl_mutual")},
        trace=TraceOptions("opentelemetry", opentelemetry=(("headers", "trace-secret"),)),
    )
    world = SupervisorHarness(make_blueprint("m"), settings=settings)
    world.start().fork_http_worker()

    documents = {
        role: world.messages_to(role, wire.Bootstrap)[0].settings
        for role in ("broker", "http-arbiter", "http", "grpc", "metrics", "stub")
    }
    others = (*LOCAL_SERVICES, "announcer", "guest", "tracer")
    documents |= {role: settings.document(role) for role in others}

    def hears(text: str) -> set[str]:
        return {role for role, document in documents.items() if text in document}

    assert ({"http"}, {"grpc"}) == (hears("http-secret"), hears("grpc-secret"))
    assert {"door"} & LOCAL_SERVICES == hears("local-secret")
    assert {"announcer"} == hears("announcing-secret") == hears("/announcer/token")
    assert {"tracer"} == hears("trace-secret")
    for file in _FILES:
        assert ({"http"}, {"grpc"}) == (hears(f"/http/{file}"), hears(f"/grpc/{file}"))
    assert {"http", "grpc", "metrics"} | (LOCAL_SERVICES - {"door"}) == hears("/of/tokens")
    clients, models = (settings.cache_secrets[role] for role in ("http", "stub"))
    assert {"http", "grpc", *LOCAL_SERVICES} == hears(clients)
    assert {"broker", "stub"} == hears(models)


_FILES = ("server_cert", "server_key", "root_cert")


@pytest.mark.slow
def test_ps_shows_no_key() -> None:
    program = (
        "import sys; from zmqtriton.options import parse;"
        "from zmqtriton.start import secrets;"
        "secrets.hide_from_command_line(parse(sys.argv[1:]));"
        "print(open('/proc/self/cmdline').read().replace(chr(0), ' '))"
    )
    words = [
        "--model-repository=/m",
        "--http-restricted-api=trace:k=one",
        "--grpc-restricted-protocol",
        "health:k=two=2",
        "--grpc-restricted-protocol=trace:k=@/run/file",
        "--id=one",
    ]

    shown = subprocess.check_output([sys.executable, "-c", program, *words], text=True)

    for part in ("api=trace:k=***", "health:k=*****", "trace:k=@/run/file"):
        assert part in shown


# ------------------------------------------------------------------- tokens
LINE = f"a sha256:{token_file.Grant.digest_of('a').hex()} scopes=infer\n"


LOCAL = ("--http-address=127.0.0.1", "--grpc-address=localhost")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(LINE)
    path.chmod(0o600)
    return path


def options(path: Path, *more: str) -> Options:
    return parse(["--model-repository=/m", f"--tokens={path}", *more])


@pytest.mark.parametrize(
    ("more", "warnings"),
    [
        (LOCAL, []),
        (("--grpc-address=::1", "--http-address=127.0.0.2"), []),
        (LOCAL[:1], ["tokens come unencrypted to 0.0.0.0"]),
        (("--allow-grpc=false", LOCAL[0]), []),
    ],
)
def test_tokens_that_travel_unencrypted_are_warned_of(
    path: Path, caplog: pytest.LogCaptureFixture, more: tuple[str, ...], warnings: list[str]
) -> None:
    secrets.check_tokens(options(path, *more))

    assert warnings == [record.getMessage().partition(",")[0] for record in caplog.records]


@pytest.mark.extra("openai")
def test_a_limit_of_tokens_needs_somebody_who_counts_them(path: Path) -> None:
    path.write_text(LINE.rstrip() + " tokens_per_minute=100\n")

    secrets.check_tokens(options(path, *LOCAL, "--token-metrics"))
    with pytest.raises(SecretError, match=r"tokens_per_minute needs --token-metrics$"):
        secrets.check_tokens(options(path, *LOCAL))


@pytest.mark.row("L09")
def test_what_others_may_read_or_what_is_empty_is_warned_of(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.chmod(0o644)
    secrets.check_tokens(options(path, *LOCAL))
    path.chmod(0o600)
    path.write_text("# nobody\n")
    secrets.check_tokens(options(path, *LOCAL))

    readable, empty = (record.getMessage() for record in caplog.records)
    assert readable.endswith("all users of this machine may read it; chmod 600 it")
    assert empty.endswith("`zmqtriton token new` makes one")


# ------------------------------------------------------------------------------- guard
# Descriptors that are ready in the same moment.


def test_what_is_unregistered_amid_its_moment_is_not_called_nor_is_who_has_its_number() -> None:
    with selectors.DefaultSelector() as selector:
        pipes = {name: os.pipe() for name in ("first", "second")}
        called: list[str] = []

        def bury(name: str) -> None:
            """Ends the other one, of which nothing was read; its number is given away."""
            called.append(name)
            other = pipes["second" if name == "first" else "first"][0]
            selector.unregister(other)
            os.dup2(pipes[name][0], other)
            selector.register(other, selectors.EVENT_READ, lambda: called.append("stranger"))

        for name, (reading, writing) in pipes.items():
            os.write(writing, b"!")
            selector.register(reading, selectors.EVENT_READ, lambda name=name: bury(name))

        ready = selector.select(10)
        assert 2 == len(ready)
        call_ready(selector, ready)

        assert 1 == len(called)
        for descriptor in sum(pipes.values(), ()):
            os.close(descriptor)


# ----------------------------------------------------------------------- action runner
# Actions of the supervisor's core, as far as they need no machine.


def test_a_document_has_a_line_for_each_value_unless_it_is_very_large() -> None:
    large = json.dumps({"a": ["b"] * 20_000})

    assert '{\n    "a": 1\n}' == indented('{"a": 1}')
    assert large == indented(large)


# -------------------------------------------------------------------------------- gpus
# Which GPUs there are, and how CUDA_VISIBLE_DEVICES numbers them.


THREE = [Gpu("GPU-aa11", 7.0), Gpu("GPU-ab22", 9.0), Gpu("GPU-cc33", 5.2)]


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("2,0", (0, 1)),
        ("1", (0,)),
        ("GPU-ab,GPU-cc33", (0, 1)),
        # The list ends at what is no GPU.
        ("1,-1,0", (0,)),
        ("0,7,1", (0,)),
        ("GPU-a", ()),
        ("none", ()),
        ("1,1", (0,)),
        ("MIG-5c89,MIG-6d90", (0, 1)),
    ],
)
@pytest.mark.row("B22", "B23")
def test_gpus_are_numbered_as_cuda_numbers_them(
    visible: str | None, numbers: tuple[int, ...]
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}

    assert numbers == Gpu.visible(environment=environment, find=lambda: THREE)


@pytest.mark.row("--min-supported-compute-capability")
def test_gpus_that_are_too_old_are_left_out_and_the_others_keep_their_numbers() -> None:
    assert (1, 2) == Gpu.visible(6.0, {"CUDA_VISIBLE_DEVICES": "2,1,0"}, lambda: THREE)


def test_what_is_in_use_is_asked_of_the_gpu_that_cuda_calls_so() -> None:
    uuids: list[str] = []

    def ask(gpu: Gpu) -> tuple[int, int]:
        uuids.append(gpu.uuid)
        return 30, 120

    shares = [
        used_memory_share(n, {"CUDA_VISIBLE_DEVICES": "2,0"}, lambda: THREE, ask) for n in (0, 1, 2)
    ]

    assert ([0.25, 0.25, None], ["GPU-cc33", "GPU-aa11"]) == (shares, uuids)


def test_what_is_in_use_is_unknown_where_the_library_fails() -> None:
    def fail(gpu: Gpu) -> tuple[int, int]:
        raise NvmlError("nvmlDeviceGetMemoryInfo returned 3")

    assert None is used_memory_share(0, {}, lambda: THREE, fail)


@pytest.mark.parametrize("error", [OSError("no library"), NvmlError("nvmlInit_v2 returned 9")])
def test_without_a_driver_there_are_none(error: Exception) -> None:
    def fail() -> Sequence[Gpu]:
        raise error

    assert () == Gpu.visible(environment={}, find=fail)


def test_a_machine_without_the_library_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_LIBRARY", "libnothing-of-the-kind.so.1")

    with pytest.raises(OSError, match="libnothing"):
        list_nvml_gpus()
    assert () == Gpu.visible(environment={})


@pytest.mark.gpu
def test_a_gpu_is_found_by_its_uuid() -> None:
    try:
        gpus = list_nvml_gpus()
    except OSError as error:
        pytest.skip(f"no driver: {error}")
    first = gpus[0]

    assert first.uuid.startswith("GPU-")
    assert first.compute_capability >= 5.0
    assert (0,) == Gpu.visible(environment={"CUDA_VISIBLE_DEVICES": first.uuid})
    share = used_memory_share(0, {"CUDA_VISIBLE_DEVICES": first.uuid})
    assert share is not None
    assert 0 < share < 1
