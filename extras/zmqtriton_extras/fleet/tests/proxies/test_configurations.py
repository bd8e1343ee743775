"""Configurations that `zmqtriton-ctl proxy` prints, judged by the proxies themselves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.certificates import Authority
from zmqtriton_extras.fleet.proxies.command import proxy
from zmqtriton_extras.fleet.tests.proxies.programs import KINDS, check_command

pytestmark = pytest.mark.slow

PLAIN = ("127.0.0.1:9000,grpc=9001,agent=9003", "[::1]:9010,grpc=9011")
ENCRYPTED = ("https://localhost:9000,grpcs=9001", "https://localhost:9010,grpcs=9011")
EVERYTHING = (
    "--model=resnet",
    "--model=b.c-2~",
    "--model=Resnet",
    "--model-domain=models.example",
    "--may-repeat",
    "--affinity-header=X-Session",
    "--header=Authorization: a \"b' $c",
)


def run(*words: str) -> Result:
    return CliRunner().invoke(proxy, words)


def check(kind: str, text: str, directory: Path) -> None:
    configuration = directory / "proxy.yaml"
    configuration.write_text(text)
    command = check_command(kind, configuration)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [(), EVERYTHING, ("--sequence-header=", "--model-header=", "--grpc=", "--statistics=")],
)
def test_each_proxy_accepts_its_configuration(
    kind: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    finished = run(kind, *PLAIN, *options)

    assert finished.exit_code == 0, finished.output
    check(kind, finished.stdout, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_each_proxy_accepts_certificates(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    pem = tmp_path / "both.pem"
    pem.write_text(certificate.read_text() + key.read_text())
    encrypted = (f"--certificate={pem}", f"--server-ca={authority.cert}")

    finished = run(kind, *ENCRYPTED, *encrypted, "--model=resnet")

    assert finished.exit_code == 0, finished.output
    check(kind, finished.stdout, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_servers_on_loopback_are_called_by_their_address_and_others_as_clients_do(
    kind: str,
) -> None:
    word = {
        "haproxy": "http-request set-header Host ",
        "envoy": "host_rewrite_literal: ",
    }[kind]
    for address in ("127.0.0.1:9000", "[::1]:9000", "localhost:9000"):
        text = run(kind, "10.0.0.7:8000,grpc=8001", f"{address},grpc=9001").stdout
        hosts = {line.split(word)[1].strip('";') for line in text.splitlines() if word in line}
        assert {address} == hosts
        assert "--http-allowed-origin" in text
    text = run(kind, "10.0.0.7:8000,grpc=8001", "desk.example:8000").stdout
    assert "--http-allowed-origin" not in text
    assert word not in text


def test_a_model_is_looked_for_where_it_was_announced(tmp_path: Path) -> None:
    for number, models in ((1, ["a"]), (2, ["a", "b"])):
        announcement = {
            **{"format": 1, "state": "ready", "interval_s": 5},
            "addresses": {"http": f"10.0.0.{number}:8000", "grpc": f"10.0.0.{number}:8001"},
            "models": [{"name": name, "ready": True} for name in models],
        }
        (tmp_path / f"{number}.json").write_text(json.dumps(announcement))

    text = run("haproxy", str(tmp_path)).stdout

    backends = {part.split()[0]: part for part in text.split("\nbackend ")[1:]}
    assert backends["model:a"].count("\n    server ") == 2
    assert backends["model:b"].count("\n    server ") == 1
    assert "server 10.0.0.2-8000 10.0.0.2:8000\n" in backends["model:b"]
    assert "GET /v2/models/b/ready\n" in backends["model:b"]
    assert "use_backend model:b if { path /v2/models/b } || { path_beg /v2/models/b/ }\n" in text
    assert backends["grpc_servers"].count("\n    server ") == 2
    assert backends["grpc:model:b"].count("\n    server ") == 1
    assert "server 10.0.0.2-8000 10.0.0.2:8001 proto h2 check port 8000" in backends["grpc:model:b"]
    assert "GET /v2/models/b/ready\n" in backends["grpc:model:b"]
    assert "use_backend grpc:model:b if { req.hdr(X-Model) -m str b }\n" in text


def test_a_server_that_has_ended_is_left_out(tmp_path: Path) -> None:
    announcement = {"format": 1, "state": "ended", "addresses": {"http": "10.0.0.1:8000"}}
    (tmp_path / "1.json").write_text(json.dumps(announcement))

    finished = run("haproxy", str(tmp_path), "10.0.0.2:8000")

    assert finished.stderr == "left out: 10.0.0.1:8000 (ended)\n"
    assert "10.0.0.1" not in finished.stdout
    assert run("haproxy", str(tmp_path)).exit_code == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("10.0.0.1",), "'10.0.0.1' is neither there nor an address"),
        (("10.0.0.1:1,port=3",), "'port' is not known"),
        (("10.0.0.1:1", "--model=a b"), "rename it with letters"),
        (("10.0.0.1:1", "--sequence-header=a b"), "no name of a header"),
        (("10.0.0.1:1", "--model-header=a b"), "no name of a header"),
        (("10.0.0.1:1", "--affinity-header=a b"), "no name of a header"),
        (("10.0.0.1:1", "--model-domain=a b"), "'a b' is no domain"),
        (("10.0.0.1:1", "--follow"), "--follow and --write go together"),
        (("10.0.0.1:1", "--receive=0.0.0.0:1"), "--receive needs --follow"),
        (("10.0.0.1:1", "--socket=s"), "--socket needs haproxy and --follow"),
        ((), "name servers, or where they announce themselves"),
        (("10.0.0.1:1", "--http=8000"), "is not HOST:PORT"),
        (("nothing/here.json",), "No such file or directory"),
    ],
)
def test_mistakes_are_named(words: tuple[str, ...], text: str) -> None:
    finished = run("haproxy", *words)

    assert finished.exit_code
    assert text in finished.stderr
    assert finished.stdout == ""


def test_a_mixture_of_servers_with_and_without_tls_is_for_haproxy_alone() -> None:
    mixed = (PLAIN[0], ENCRYPTED[1])

    assert run("haproxy", *mixed).exit_code == 0
    assert "some servers have TLS" in run("envoy", *mixed).stderr
