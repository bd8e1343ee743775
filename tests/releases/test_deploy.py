"""Files for deployment, and releases."""

from __future__ import annotations

import gzip
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.releases import distributions
from tests.support.needs import ROOT, find_tool
from tests.system.docs.examples import read_blocks
from tools import release
from zmqtriton.options import Options, parse
from zmqtriton_extras.fleet.proxies.command import proxy

# ------------------------------------------------------------------------------ deploy
# The units for systemd: what they say fits what the server does, and systemd understands it.


DEPLOY = ROOT / "deploy" / "systemd"


UNIT = DEPLOY / "zmqtriton.service"


SECURE = DEPLOY / "secure.toml"


SOCKET = DEPLOY / "zmqtriton.socket"


#: systemd's exposure level, times ten. It counts what the supervisor may do, not what models may.
MAX_EXPOSED = 33


def settings() -> dict[str, list[str]]:
    """Every assignment of the unit, in the order of the file."""
    values: dict[str, list[str]] = {}
    for line in UNIT.read_text("utf-8").splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            values.setdefault(key, []).append(value)
    return values


def seconds(key: str) -> float:
    (value,) = settings()[key]
    return float(value)


@pytest.fixture
def analyze() -> str:
    return find_tool("systemd-analyze")


@pytest.mark.parametrize("has_sequences", [False, True])
def test_haproxy_accepts_its_configuration(tmp_path: Path, has_sequences: bool) -> None:
    text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text("utf-8")
    if has_sequences:
        text = text.replace("    #   ", "    ")
        assert 2 == text.count("\n    option persist\n")
    (tmp_path / "haproxy.cfg").write_text(text)
    tool = find_tool("haproxy")

    done = subprocess.run(
        [tool, "-c", "-f", tmp_path / "haproxy.cfg"], capture_output=True, text=True
    )

    assert 0 == done.returncode, done.stderr


def test_requests_under_way_have_the_time_that_the_server_gives_them() -> None:
    assert seconds("TimeoutStopSec") > Options().exit_timeout_secs + 5


def test_the_server_speaks_for_itself_and_ends_as_a_whole() -> None:
    unit = settings()

    assert (["notify"], ["main"]) == (unit["Type"], unit["NotifyAccess"])
    assert (["mixed"], ["on-failure"]) == (unit["KillMode"], unit["Restart"])
    assert seconds("WatchdogSec") > 0


def test_ctl_looks_where_the_unit_has_the_sockets() -> None:
    (name,) = settings()["RuntimeDirectory"]
    client = (ROOT / "zmqtriton" / "control_client.py").read_text("utf-8")

    assert f'Path("/run/{name}")' in client
    assert ["0710"] == settings()["RuntimeDirectoryMode"]


@pytest.mark.parametrize(
    "setting",
    ["MemoryDenyWriteExecute", "PrivateDevices", "PrivateIPC", "PrivateUsers", "ProtectProc"],
)
def test_what_models_need_is_not_taken_away(setting: str) -> None:
    assert setting not in settings()


def test_the_kernel_may_be_asked_whose_a_connection_is() -> None:
    # else registering shared memory reads the table of all connections
    [families] = settings()["RestrictAddressFamilies"]

    assert "AF_NETLINK" in families.split()


def test_the_users_are_those_that_sysusers_makes() -> None:
    lines = (DEPLOY / "sysusers.d.conf").read_text("utf-8").splitlines()
    server, models = [line.split()[1] for line in lines if line.startswith("u ")]

    assert settings()["User"] == [server]
    assert f" --stub-user={models} " in settings()["ExecStart"][0]
    # Systemd sets owner and mode of the runtime directory at each reload; the server gives it to
    # the group of its models.
    assert settings()["Group"] == [models]
    assert server in settings()["SupplementaryGroups"][0].split()
    assert f"m {server} {models}" in lines


def test_instances_are_as_the_service_but_for_their_names() -> None:
    service, template = (
        [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
        for path in (UNIT, DEPLOY / "zmqtriton@.service")
    )

    own = [(mine, other) for mine, other in zip(template, service, strict=True) if mine != other]
    assert [
        ("Description=zmqtriton inference server %i", "Description=zmqtriton inference server"),
        (
            "EnvironmentFile=/etc/zmqtriton/%i.environment",
            "EnvironmentFile=-/etc/zmqtriton/environment",
        ),
        (
            "ExecStart=/opt/zmqtriton/bin/zmqtriton --id=%i --stub-user=zmqtriton-models "
            "$ZMQTRITON_OPTIONS",
            "ExecStart=/opt/zmqtriton/bin/zmqtriton --stub-user=zmqtriton-models "
            "$ZMQTRITON_OPTIONS",
        ),
        (
            "ExecReload=/opt/zmqtriton/bin/zmqtriton-ctl replace -- --id=%i "
            "--stub-user=zmqtriton-models $ZMQTRITON_OPTIONS",
            "ExecReload=/opt/zmqtriton/bin/zmqtriton-ctl replace -- "
            "--stub-user=zmqtriton-models $ZMQTRITON_OPTIONS",
        ),
        ("RuntimeDirectory=zmqtriton-%i", "RuntimeDirectory=zmqtriton"),
    ] == own


def test_the_sockets_are_on_the_ports_of_the_server() -> None:
    ports = re.findall(r"(?m)^ListenStream=0\.0\.0\.0:(\d+)$", SOCKET.read_text("utf-8"))

    assert [Options().http_port, Options().grpc_port] == list(map(int, ports))
    assert "0.0.0.0" == Options().http_address == Options().grpc_address


def test_each_option_of_the_example_exists() -> None:
    text = (DEPLOY / "environment").read_text("utf-8")
    (line,) = re.findall('(?m)^ZMQTRITON_OPTIONS="(.*)"$', text)

    assert f"Environment=ZMQTRITON_OPTIONS={line}" in UNIT.read_text("utf-8").splitlines()
    files = {"/etc/zmqtriton/secure.toml": SECURE.read_text("utf-8")}
    for example in re.findall(r"(?m)^#   (--.*?)(?:   .*)?$", text):
        parse([*line.split(), *example.split()], read_file=files.__getitem__)


def test_the_secure_configuration_is_the_one_that_the_guide_runs() -> None:
    blocks = read_blocks(ROOT / "docs/guides/access.md", ROOT)

    assert [SECURE.read_text("utf-8")] == [
        block.text for block in blocks if block.note("file") == "/etc/zmqtriton/secure.toml"
    ]


def test_logrotate_understands_its_configuration(tmp_path: Path) -> None:
    tool = find_tool("logrotate")
    log = tmp_path / "logs" / "zmqtriton.log"
    log.parent.mkdir(mode=0o750)
    log.write_text("a line\n")
    text = (
        (DEPLOY / "logrotate.conf")
        .read_text("utf-8")
        .replace("/var/log/zmqtriton", str(log.parent))
    )
    # The user is not installed where this runs, nor does systemd run.
    text = re.sub(r"(?m)^ +su .*$", "", text)
    text = text.replace("systemctl", f"echo > {tmp_path}/told; true")
    config = tmp_path / "logrotate.conf"
    config.write_text(text)
    config.chmod(0o644)

    subprocess.run([tool, "--force", "--state", tmp_path / "state", config], check=True)

    assert ["zmqtriton.log.1"] == [path.name for path in log.parent.iterdir()]
    assert (tmp_path / "told").exists()


def test_systemd_understands_the_units(analyze: str, tmp_path: Path) -> None:
    of_proxy = ROOT / "deploy" / "haproxy" / "zmqtriton-proxy.service"
    for path in (*DEPLOY.glob("*.service"), *DEPLOY.glob("*.socket"), of_proxy):
        # Program and user are not installed where this runs.
        text = re.sub(r"(?m)^(Exec\w+)=\S+", r"\1=/bin/true", path.read_text("utf-8"))
        text = re.sub(r"(?m)^(User|Group|SupplementaryGroups)=.*$", "", text)
        (tmp_path / path.name.replace("@", "@81")).write_text(text, "utf-8")
    units = sorted(map(str, tmp_path.iterdir()))
    assert 5 == len(units)

    verified = subprocess.run(
        [analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )

    assert (0, "") == (verified.returncode, verified.stderr)


def test_the_service_exposes_little(analyze: str) -> None:
    rated = subprocess.run(
        [analyze, "security", "--offline=yes", f"--threshold={MAX_EXPOSED}", str(UNIT)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == rated.returncode, rated.stdout


def test_the_package_starts_nothing_that_did_not_run() -> None:
    scripts = {
        name: (ROOT / "deploy" / "debian" / name).read_text("utf-8")
        for name in ("build.sh", "postinst", "prerm", "postrm")
    }

    for name, script in scripts.items():
        checked = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True)
        assert (name, "") == (name, checked.stderr)
        assert [] == re.findall(r"systemctl (?:re)?start|systemctl enable|deb-systemd", script)
    assert "systemctl try-reload-or-restart" in scripts["postinst"]


def test_a_server_that_does_not_come_back_leaves_the_package_whole(tmp_path: Path) -> None:
    for name, status in (("systemd-sysusers", 0), ("systemd-tmpfiles", 0), ("systemctl", 1)):
        (command := tmp_path / name).write_text(
            f'#!/bin/sh\n[ "$1" != try-reload-or-restart ] || exit {status}\n'
        )
        command.chmod(0o755)
    script = (ROOT / "deploy" / "debian" / "postinst").read_text("utf-8")
    here = script.replace("/run/systemd/system", str(tmp_path))

    upgraded = subprocess.run(
        ["sh", "-s", "configure", "0.1.0-1"],
        input=here,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert 0 == upgraded.returncode
    assert "systemctl status" in upgraded.stderr


def test_variables_of_models_which_may_be_secrets_are_not_for_everybody() -> None:
    for page in (DEPLOY / "README.md", ROOT / "deploy" / "debian" / "build.sh"):
        [mode] = re.findall(r"install -D -m (\d+) \S*environment\b", page.read_text("utf-8"))
        assert "640" == mode


def test_the_unit_of_the_proxy_has_options_that_exist() -> None:
    text = (ROOT / "deploy" / "haproxy" / "zmqtriton-proxy.service").read_text("utf-8")
    [command] = re.findall(r"(?m)^ExecStart=((?:.*\\\n)*.*)$", text)
    words = shlex.split(command.replace("\\\n", " "))

    options = {option for parameter in proxy.params for option in parameter.opts}
    assert ["zmqtriton-ctl", "proxy", "haproxy"] == [Path(words[0]).name, *words[1:3]]
    assert {word.partition("=")[0] for word in words[3:]} <= options
    assert "ReadWritePaths=/etc/haproxy" in text


# ----------------------------------------------------------------------------- release
# The parts of `make release` that need no build: versions, the changelog's entry, equal bytes.


CHANGES = "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.1.0] - 2026-01-01\n\n- Old.\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in release.WITH_VERSION:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    return tmp_path


def test_the_version_is_written_once_wherever_it_stands(checkout: Path) -> None:
    assert [*release.WITH_VERSION] == release.write_version(checkout, "7.8.9")
    assert [] == release.write_version(checkout, "7.8.9")

    text = (checkout / "packages/pytriton/pyproject.toml").read_text()
    assert 'version = "7.8.9"' in text
    assert '"zmqtriton==7.8.9"' in text
    assert '__version__ = "7.8.9"' in (checkout / "stub/zmqtriton_floor/__init__.py").read_text()


@pytest.mark.long(
    "releases/test_packaging.py::test_the_wheel_holds_every_file_of_every_package",
    "releases/test_deploy.py::test_a_package_of_an_extra_that_is_left_out_is_not_built",
)
def test_a_wheel_without_some_extras_names_them_where_they_are_asked_for(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    release.copy_tracked(source, 0o644, ["door", "fleet"])
    with zipfile.ZipFile(distributions.build(source, tmp_path, "--wheel")) as wheel:
        wheel.extractall(target)

    def started(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "zmqtriton", *words],
            capture_output=True,
            text=True,
            cwd=target,
            env={**os.environ, "PYTHONPATH": str(target)},
        )
        return done.returncode, done.stdout, done.stderr

    extras = {path.name for path in (target / "zmqtriton_extras").iterdir()}
    assert {"capture", "names.txt"} <= extras
    assert not {"door", "fleet"} & extras
    said = "--zmq-door: the add-on 'door' is not installed\n"
    assert (1, "", said) == started("--model-repository=/nowhere", "--zmq-door=true")
    _, text, _ = started("--help")
    assert "--capture" in text
    assert [] == [
        name for name in ("--zmq-door", "--announce", "--agent-check-port") if name in text
    ]


@pytest.mark.parametrize(
    ("without", "built"),
    [
        ([], ["pytriton", "tritonserver", "client"]),
        (["door", "fleet"], ["pytriton", "tritonserver"]),
        (["tritonserver"], ["pytriton", "client"]),
    ],
)
def test_a_package_of_an_extra_that_is_left_out_is_not_built(
    without: list[str], built: list[str]
) -> None:
    assert built == release.packages(without)


def test_only_extras_can_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseError, match="there is no extra 'tracing'"):
        release.release("7.8.9", tmp_path, ["tracing"])


def test_what_is_unreleased_becomes_the_entry_of_the_version(checkout: Path) -> None:
    assert ["CHANGELOG.md"] == release.write_entry(checkout, "7.8.9", "2026-11-26")
    assert [] == release.write_entry(checkout, "7.8.9", "2026-11-27")

    text = (checkout / "CHANGELOG.md").read_text()
    assert "## [Unreleased]\n\n## [7.8.9] - 2026-11-26\n\n- New.\n" in text
    assert "- New.\n" == release.entry_of(checkout, "7.8.9")
    assert "- Old.\n" == release.entry_of(checkout, "0.1.0")


def test_a_version_of_which_nothing_is_said_is_refused(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("## [7.8.9] - 2026-11-26\n\n## [0.1.0]\n\n- Old.\n")

    with pytest.raises(release.ReleaseError, match="says nothing of"):
        release.entry_of(checkout, "7.8.9")


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3-rc1"])
def test_what_is_no_version_is_refused(version: str, tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseError, match="is no version"):
        release.release(version, tmp_path)


def sdist_of(*names: str, mode: int, moment: int, user: int) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime, member.uid = len(name), mode, moment, user
            archive.addfile(member, io.BytesIO(name.encode()))
    return gzip.compress(raw.getvalue(), mtime=moment)


def test_an_sdist_depends_on_its_contents_alone() -> None:
    first = release.repacked_sdist(sdist_of("p/a", "p/b", mode=0o644, moment=1, user=0), 1000)
    second = release.repacked_sdist(sdist_of("p/b", "p/a", mode=0o600, moment=2, user=7), 1000)

    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert ["p/a", "p/b"] == archive.getnames()
        read = archive.extractfile("p/b")
        assert read is not None
        assert b"p/b" == read.read()


def wheel_of(*names: str, year: int, mode: int) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name in names:
            info = zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0))
            info.external_attr = mode << 16
            archive.writestr(info, name)
    return raw.getvalue()


def test_a_wheel_likewise_and_its_record_is_the_last() -> None:
    names = ("p.dist-info/RECORD", "p/a.py", "q.py")
    first = release.repacked_wheel(wheel_of(*names, year=2020, mode=0o100644), 10**9)
    second = release.repacked_wheel(wheel_of(*names[::-1], year=2021, mode=0o100600), 10**9)

    assert first == second
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert ["p/a.py", "q.py", "p.dist-info/RECORD"] == archive.namelist()


def test_sums_are_of_all_files_and_are_signed_where_a_key_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    monkeypatch.delenv("RELEASE_KEY", raising=False)

    release.sign(tmp_path)

    assert (tmp_path / "SHA256SUMS").read_text().endswith("  a.whl\n")
    assert "not signed" in capsys.readouterr().out


# ------------------------------------------------------------------ the workflow

#: Writes its arguments, in place of a program that publishes.
RECORDER = '#!/bin/sh\necho "${0##*/} $*" >> "$RECORD"\n'


@pytest.fixture
def jobs() -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))["jobs"]


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """The files of a release, as the second jobs get them, by their names."""
    out = tmp_path / "release"
    out.mkdir()
    for name in ("zmqtriton", *(f"zmqtriton_{package}" for package in release.PACKAGES)):
        (out / f"{name}-7.8.9-py3-none-any.whl").touch()
        (out / f"{name}-7.8.9.tar.gz").touch()
    release.write_image_context(out, "7.8.9", 10**9)
    for name in ("zmqtriton-7.8.9-changes.md", "zmqtriton-7.8.9.cdx.json", "SHA256SUMS"):
        (out / name).touch()
    (out / "zmqtriton_7.8.9_amd64.deb").touch()
    return tmp_path


def run_steps(job: dict[str, Any], directory: Path) -> list[str]:
    """Run the commands of a job as GitHub does; return those that publish."""
    record, programs = directory / "record", directory / "bin"
    programs.mkdir()
    for name in ("gh", "docker"):
        (programs / name).write_text(RECORDER)
        (programs / name).chmod(0o755)
    record.touch()
    for step in job["steps"]:
        if "run" in step:
            environment = {
                "PATH": f"{programs}:{os.environ['PATH']}",
                "RECORD": str(record),
                "GITHUB_REF_NAME": "v7.8.9",
                "GITHUB_REPOSITORY": "Owner/zmqtriton",
            }
            command = [find_tool("bash"), "-e", "-c", step["run"]]
            subprocess.run(command, cwd=directory, env=environment, check=True)
    return record.read_text().splitlines()


def test_the_workflow_builds_by_the_command_of_the_page(jobs: dict[str, Any]) -> None:
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]

    [build] = [command for command in commands if "make release" in command]
    assert build.endswith('make release VERSION="${GITHUB_REF_NAME#v}"')
    assert "\nrelease:" in (ROOT / "Makefile").read_text("utf-8")
    kept = [step["with"]["path"] for step in jobs["build"]["steps"] if "artifact" in str(step)]
    assert "build/release" in kept
    assert {"page", "index", "image"} == {
        name for name, job in jobs.items() if job.get("needs") == "build"
    }


def test_the_page_of_a_release_has_its_changes_and_all_files(
    jobs: dict[str, Any], built: Path
) -> None:
    files = sorted(f"release/{path.name}" for path in (built / "release").iterdir())

    [published] = run_steps(jobs["page"], built)

    assert published == (
        "gh release create v7.8.9 --repo Owner/zmqtriton --notes-file "
        f"release/zmqtriton-7.8.9-changes.md {' '.join(files)}"
    )


def test_the_index_gets_wheels_and_sdists_and_nothing_else(
    jobs: dict[str, Any], built: Path
) -> None:
    run_steps(jobs["index"], built)

    names = {path.name for path in (built / "dist").iterdir()}
    assert 2 * (1 + len(release.PACKAGES)) == len(names)
    assert set() == {name for name in names if "-7.8.9" not in name or "image" in name}


def test_the_image_is_built_where_its_context_is(jobs: dict[str, Any], built: Path) -> None:
    build, push = run_steps(jobs["image"], built)

    assert "docker build -t ghcr.io/owner/zmqtriton:7.8.9 ." == build
    assert "docker push ghcr.io/owner/zmqtriton:7.8.9" == push
    assert "ARG ZMQTRITON=/src/zmqtriton-7.8.9-py3-none-any.whl" in (
        built / "Dockerfile"
    ).read_text("utf-8")
