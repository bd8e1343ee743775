"""Servers, their ports, users and systemd units."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.findings import Finding, error, note, warning
from zmqtriton_addons.tools.doctor.facts import Facts, Unit

_FEW_DESCRIPTORS = 4096
#: Those of the server, if no options are known.
_EXIT_TIMEOUT_S = 30


def judge_options(facts: Facts) -> Iterator[Finding]:
    if facts.options_problem:
        yield error(
            f"a server cannot start with these options: {facts.options_problem}",
            "Correct them; in the unit they stand in ZMQTRITON_OPTIONS.",
            "zmqtriton --help",
        )


def judge_models(facts: Facts) -> Iterator[Finding]:
    troubled = facts.server.troubled if facts.server else ()
    if troubled:
        are = "is" if len(troubled) == 1 else "are"
        yield warning(
            f"{', '.join(troubled)} {are} not ready",
            "This says why, and what to do:",
            "zmqtriton-ctl explain",
        )


def judge_stopped_processes(facts: Facts) -> Iterator[Finding]:
    for process in facts.server.processes if facts.server else ():
        if process.state in ("T", "t"):
            yield error(
                f"{process.name} (pid {process.pid}) is stopped by a signal or a debugger",
                "It does nothing until it is continued.",
                f"kill -CONT {process.pid}",
            )
        elif process.state == "D":
            yield note(
                f"{process.name} (pid {process.pid}) waits for a disk or a driver",
                "If that stays so, a file system or a GPU hangs; the process cannot be killed.",
                f"cat /proc/{process.pid}/wchan",
            )


def judge_ports(facts: Facts) -> Iterator[Finding]:
    for port in facts.ports:
        if port.is_forbidden:
            yield error(
                f"--{port.option}={port.number}: only root may open ports below 1024",
                "Take a higher port, or give the unit CAP_NET_BIND_SERVICE in AmbientCapabilities= "
                "and CapabilityBoundingSet=.",
                f"zmqtriton --{port.option}={port.number + 8000}",
            )
        elif port.problem:
            by = f" by {port.holder}" if port.holder else ""
            in_use = f"port {port.number} is in use{by}"
            text = in_use if port.problem == "in use" else f"port {port.number}: {port.problem}"
            yield error(
                f"{text}, so a server cannot start with --{port.option}={port.number}",
                "End that process, or take another port.",
                f"ss -ltnp sport = :{port.number}",
                f"zmqtriton --{port.option}={port.number + 1000}",
            )


def judge_stub_users(facts: Facts) -> Iterator[Finding]:
    for user in facts.stub_users:
        if user.problem:
            yield error(
                f"models cannot run as {user.name}: {user.problem}",
                "Give the user the right to read that and to enter the directories above it.",
                f"namei -l {user.problem.rpartition(' ')[2]}",
            )


def judge_units(facts: Facts) -> Iterator[Finding]:
    for unit in facts.units:
        yield from _judge_unit(unit, facts)


def _judge_unit(unit: Unit, facts: Facts) -> Iterator[Finding]:
    edit = "systemctl edit zmqtriton"
    if unit.failure and facts.server is None:
        yield error(
            f"{unit.path} does not stay up: its last run ended with {unit.failure}",
            "The last lines of its log say why. Where one model cannot be loaded, "
            "--exit-on-error=false serves the others.",
            "journalctl -u zmqtriton -n 30",
        )
    if unit.missing_program:
        yield error(
            f"{unit.path} starts {unit.missing_program}, which does not exist",
            "Install the server there, or correct ExecStart=.",
            "python3 -m venv /opt/zmqtriton",
        )
    exit_s = facts.options.get("exit-timeout-secs", _EXIT_TIMEOUT_S)
    needed_s = exit_s + facts.options.get("exit-drain-secs", 0)
    if unit.stop_timeout_s is not None and unit.stop_timeout_s <= needed_s:
        yield warning(
            f"{unit.path} kills the server {unit.stop_timeout_s:g} s after a stop, and the server "
            f"may take {needed_s:g} s to finish its requests",
            f"Set TimeoutStopSec= to {needed_s + 15:g} or more "
            "(--exit-timeout-secs and --exit-drain-secs together, and some more).",
            edit,
        )
    if unit.descriptors is not None and unit.descriptors < _FEW_DESCRIPTORS:
        yield warning(
            f"{unit.path} allows {unit.descriptors:g} file descriptors, which is few",
            "Set LimitNOFILE=65536.",
            edit,
        )
    if unit.kill_mode not in ("", "mixed"):
        yield warning(
            f"{unit.path} has KillMode={unit.kill_mode}, so requests under way are lost at a stop",
            "Set KillMode=mixed: the supervisor ends the others in order.",
            edit,
        )


def judge_proxies(facts: Facts) -> Iterator[Finding]:
    if facts.proxies:
        yield warning(
            f"{', '.join(facts.proxies)} sends requests for localhost to a proxy",
            "curl, gRPC and other clients on this machine then do not reach the server.",
            "export no_proxy=localhost,127.0.0.1,::1",
        )


def judge_home(facts: Facts) -> Iterator[Finding]:
    if facts.home_problem:
        yield note(
            f"the home directory cannot be used: {facts.home_problem}",
            "Libraries of models that keep something there fail or complain; environments are kept "
            "below it, too.",
            "export HOME=/tmp",
        )
