"""`make faults`: kills what can be killed, 20 rounds each, and prints medians and maxima.

Then many streams and many cancelled calls over gRPC. What must hold in each round is asserted; how
long it took is printed, beside its bound.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import (
    broker_death,
    frontend_death,
    grpc_load,
    overload,
    stub_death,
    supervisor_death,
    template_death,
)
from tests.faults.figures import print_figure
from tests.faults.load import Load
from tests.faults.standstills import rounds as standstills
from tests.support import leaks
from tests.support.scripted import string_parameter
from tests.support.server import Server


def _stub_deaths(
    rounds: int, clients: int, pause_s: float, name: str, instances: str = "processes"
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "s", models=["journal"])
        with (server.repository / "journal" / "config.pbtxt").open("a") as config:
            config.write(string_parameter("INSTANCES", instances))
        with server:
            # The model's own initialize is a few milliseconds; what loading costs is counted in.
            with Load(
                server.http_port,
                clients=clients,
                milliseconds=stub_death.EXECUTION_MS,
                pause_s=pause_s,
            ) as load:
                deaths: list[stub_death.Death] = []
                kills = 0
                while len(deaths) < rounds:
                    kills += 1
                    death = stub_death.kill_and_measure(server, load)
                    if death is not None:
                        deaths.append(death)
                    # Below the rate at which an instance counts as a crash loop.
                    time.sleep(stub_death.PAUSE_S)
            stub_death.check(server, load.outcomes, rounds, kills)
        print_figure(f"stub killed, {name}: error after", [d.error_ms for d in deaths], 200)
        print_figure(
            f"stub killed, {name}: executing again after", [d.back_ms for d in deaths], 1000
        )


def _template_deaths(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "s", models=["journal"], options=template_death.OPTIONS)
        template_death.use_forks(server)
        with server:
            for moment, times in template_death.run(server, rounds).items():
                print_figure(f"template killed, {moment}: what was asked done after", times, 2000)


def _supervisor_deaths(rounds: int) -> None:
    gone, again = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            death = supervisor_death.kill_and_measure(Path(folder))
            gone.append(death.gone_ms)
            again.append(death.ready_ms)
    print_figure("supervisor killed under load: everything gone after", gone, 2000)
    print_figure("supervisor killed under load: a new start ready after", again, 60_000)


def _broker_deaths(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "s", models=["journal"])
        broker_death.use_instances(server)
        with server:
            stubs = server.stub_pids("journal")
            deaths: list[broker_death.Death] = []
            with broker_death.mixed_load(server) as loads:
                for _ in range(rounds):
                    deaths.append(broker_death.kill_and_measure(server, loads))
                    # One that dies sooner has not worked, and is not started at once.
                    time.sleep(1.5)
            answers = broker_death.outcomes(loads)
            failed = broker_death.check(server, answers, stubs, rounds)
    print_figure("broker killed: answering again after", [d.back_ms for d in deaths], 1000)
    print_figure("broker killed: not ready after", [d.unready_ms for d in deaths], 500)
    print_figure("broker killed: ready again after", [d.ready_ms for d in deaths], 1000)
    print(f"broker killed: {failed} of {len(answers)} requests failed, all while executing")


def _frontend_deaths(rounds: int) -> None:
    kinds = (
        ("http process", frontend_death.http_worker_pid, 1000),
        ("http arbiter", frontend_death.http_arbiter_pid, 3000),
    )
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "s", models=["journal"])
        with server:
            for name, choose, bound in kinds:
                with Load(server.http_port, clients=4, milliseconds=20) as load:
                    back = []
                    for _ in range(rounds):
                        back.append(frontend_death.kill_http_and_measure(server, load, choose))
                        time.sleep(1.5)
                frontend_death.check(server, load.outcomes, len(load.outcomes))
                print_figure(f"{name} killed: answering again after", back, bound)
            back = []
            for _ in range(rounds):
                back.append(frontend_death.kill_grpc_and_measure(server))
                time.sleep(1.5)
            print_figure("grpc process killed: answering again after", back, 1000)


def _grpc_load() -> None:
    models = grpc_load.MODELS
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder) / "s", models) as server:
        seconds = grpc_load.run_streams(server)
        print(f"{grpc_load.STREAMS} streams of {grpc_load.RESPONSES}: {seconds:.1f} s")
        alone, beside = grpc_load.run_streams_beside_stalled(server)
        print(f"{grpc_load.READERS} streams, one not read: {beside:.1f} s, else {alone:.1f} s")
        ends = grpc_load.cancel_many(server)
        print(f"calls cancelled at any instant, nothing left: {dict(ends)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    mark = leaks.mark_session()
    before = leaks.take_snapshot(mark)
    _stub_deaths(rounds, 1, stub_death.EXECUTION_MS / 1000, "half load")
    _stub_deaths(rounds, 8, 0.0, "full load")
    for kind in ("forks", "threads"):
        _stub_deaths(rounds, 8, 0.0, f"full load, {kind}", kind)
    _template_deaths(rounds)
    _broker_deaths(rounds)
    _frontend_deaths(rounds)
    _supervisor_deaths(rounds)
    _grpc_load()
    overload.run(60.0)
    print("\n".join(standstills.run(standstills.COUNT)))
    left = leaks.find_leaks(before, mark)
    print("left behind:", left or "nothing")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
