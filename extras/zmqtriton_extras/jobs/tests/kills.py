"""Kills under submissions of jobs and batches.

No promised job is lost, none runs twice where none may, the end of each whose client wants that is
told by its webhook, and each line of a batch is answered once.

    python -m zmqtriton_extras.jobs.tests.kills --kills 2000

Most kills are of the process of jobs; each tenth is of another process, each fiftieth of the whole
server. Prints what became of jobs and lines, and exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from http.client import HTTPException
from pathlib import Path

from tests.support.journal import executions
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.jobs.tests.asking import ENDS, add_journal, ask, submit
from zmqtriton_extras.jobs.tests.batches.requests import CHAT, FORM_TYPE, form_of, line
from zmqtriton_extras.jobs.tests.webhook_receiver import App, Post, webhook_options

_SUBMITTERS = 3
_OTHERS = ("http", "broker", "stub")
_MODELS = ("journal", "again")
_WITHIN_S = 300.0
_BATCH_ENDS = ("completed", "failed", "expired", "cancelled")
_LINES = 100


class Receiver(App):
    """The receiver of webhooks; notes them."""

    def __init__(self) -> None:
        super().__init__()
        #: The state and the id of the message of each post, by job.
        self.by_job: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self.unsigned: list[Post] = []

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        post = Post(path, headers, body)
        if not post.is_signed:
            self.unsigned.append(post)
        data = post.document["data"]
        self.by_job[data["id"]].append((data["state"], post.message))
        return 200, b"{}"

    def faults(self, to_tell: set[str], states: dict[str, str]) -> list[str]:
        """Return what is wrong with the webhooks of jobs that have ended."""
        eventually(lambda: to_tell <= self.by_job.keys(), _WITHIN_S)
        wrong = [
            f"{job} is {states[job]}, its receiver was told {posts}"
            for job, posts in self.by_job.items()
            if job in states and set(posts) != {(states[job], posts[0][1])}
        ]
        return wrong + [f"not signed: {post}" for post in self.unsigned]


class Submitters:
    """Clients that submit jobs one after the other, and note those that were promised."""

    def __init__(self, server: Server, receiver: Receiver) -> None:
        self.promised: dict[str, str] = {}
        #: Those with a webhook: half of them.
        self.to_tell: set[str] = set()
        #: Statuses of other answers.
        self.refused: Counter[int] = Counter()
        self._server, self._receiver = server, receiver
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(_SUBMITTERS)
        ]

    def _run(self, worker: int) -> None:
        number = 0
        while not self._is_over.is_set():
            number += 1
            name, model = f"{worker} {number}", _MODELS[number % 2]
            headers = {"Webhook": self._receiver.url} if number % 4 < 2 else {}
            try:
                reply = submit(self._server, name, number % 3, model, headers)
            except (OSError, HTTPException):
                time.sleep(0.02)  # nobody is there, or it was killed before it promised anything
                continue
            if reply.status == 202:
                self.promised[reply.document["id"]] = name
                if headers:
                    self.to_tell.add(reply.document["id"])
            else:
                self.refused[reply.status] += 1
            time.sleep(0.01)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


class Batches:
    """A client that has one batch after the other."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.begun: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        form = form_of(*(line(f"line {n}", f"word {n}") for n in range(_LINES)))
        while not self._is_over.is_set():
            file = self._insist("/v1/files", form, FORM_TYPE)
            fields = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
            batch = self._insist("/v1/batches", json.dumps(fields).encode(), {})
            if batch:
                self.begun.append(batch)
                while not self._is_over.is_set() and self._state(batch) not in _BATCH_ENDS:
                    time.sleep(0.1)

    def _insist(self, path: str, body: bytes, headers: dict[str, str]) -> str:
        """Ask until it is promised; return its id, "" if it is over before."""
        while not self._is_over.is_set():
            try:
                reply = ask(self._server, path, body, headers)
            except (OSError, HTTPException):
                time.sleep(0.02)
                continue
            if reply.status == 200:
                return str(reply.document["id"])
            assert reply.status in (500, 503), reply
            time.sleep(0.02)
        return ""

    def _state(self, batch: str) -> str:
        """Return the state of a batch, "" while nobody tells it."""
        try:
            reply = ask(self._server, f"/v1/batches/{batch}")
        except (OSError, HTTPException):
            return ""
        assert reply.status != 404, f"{batch} is lost"
        return str(reply.document["status"]) if reply.status == 200 else ""

    def faults(self) -> list[str]:
        """Return what is wrong with the answers of batches, when all have ended."""
        faults = []
        right = sorted(f"line {n}" for n in range(_LINES))
        for batch in self.begun:
            eventually(lambda batch=batch: self._state(batch) in _BATCH_ENDS, _WITHIN_S)  # type: ignore[misc]
            document = ask(self._server, f"/v1/batches/{batch}").document
            rows = [
                json.loads(row)["custom_id"]
                for name in ("output_file_id", "error_file_id")
                if (file := document[name])
                for row in ask(self._server, f"/v1/files/{file}/content").body.splitlines()
            ]
            if sorted(rows) != right or document["status"] != "completed":
                faults.append(f"{batch} is {document['status']} with {len(rows)} lines")
        return faults


class Killer:
    def __init__(self, server: Server, submitters: Submitters, seed: int) -> None:
        self._server = server
        self._submitters = submitters
        self._chance = random.Random(seed)
        self.kills: Counter[str] = Counter()

    def perform(self) -> None:
        """Kill once, when at least one more job was promised since the last time."""
        before = len(self._submitters.promised)
        eventually(lambda: len(self._submitters.promised) > before, _WITHIN_S)
        time.sleep(self._chance.random() * 0.1)
        number = self.kills.total() + 1
        if number % 50 == 0:
            self._server.kill()
            self._server.process = None
            self._server.start()
            self.kills["supervisor"] += 1
            return
        role = "jobs" if number % 10 else self._chance.choice(_OTHERS)
        for pid in self._server.pids().get(role, []):
            os.kill(pid, signal.SIGKILL)
        self.kills[role] += 1


def _outcomes(server: Server, promised: dict[str, str]) -> dict[str, str]:
    """Return what became of each job, once it has ended."""
    states: dict[str, str] = {}

    def has_ended(job: str) -> bool:
        try:
            reply = ask(server, f"/v2/jobs/{job}")
        except (OSError, HTTPException):
            return False
        states[job] = reply.document["state"] if reply.status == 200 else str(reply.status)
        return states[job] in (*ENDS, "404")

    for job in promised:
        eventually(lambda job=job: has_ended(job), _WITHIN_S)  # type: ignore[misc]
    return states


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--until", default="", metavar="HH:MM", help="end then at the latest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="job-kills-") as place:
        receiver = Receiver()
        on = [*webhook_options(Path(place), receiver.authority), "--allow-openai"]
        server = Server(Path(place) / "s", ["parrot"], options=on, frontends=())
        add_journal(server)
        add_journal(server, "again", JOBS_REPEAT="true")
        with receiver, server:
            submitters, batches = Submitters(server, receiver), Batches(server)
            killer = Killer(server, submitters, options.seed)
            submitters.start()
            batches.start()
            try:
                while killer.kills.total() < options.kills:
                    if options.until and time.strftime("%H:%M") >= options.until:
                        break
                    killer.perform()
                    if not killer.kills.total() % 100:
                        _say(f"{dict(killer.kills)}, {len(submitters.promised)} jobs")
            finally:
                submitters.end()
                batches.end()
            states = _outcomes(server, submitters.promised)
            counts = executions(server.journal)
            lost = [job for job, state in states.items() if state not in ENDS]
            unexecuted = [
                job
                for job, state in states.items()
                if state == "succeeded" and not counts.get(submitters.promised[job])
            ]
            once = {name for name in submitters.promised.values() if not int(name.split()[1]) % 2}
            twice = [name for name in once if counts.get(name, 0) > 1]
            _say(
                f"kills {dict(killer.kills)}; jobs {len(states)}: {dict(Counter(states.values()))}"
            )
            _say(f"submissions without a promise: {dict(submitters.refused)}")
            _say(f"lost {lost}, succeeded without an execution {unexecuted}, twice {twice}")
            untold = receiver.faults(submitters.to_tell, states)
            posts = sum(map(len, receiver.by_job.values()))
            _say(f"webhooks of {len(submitters.to_tell)} jobs, {posts} posts, wrong {untold}")
            wrong = batches.faults()
            _say(f"batches of {_LINES} lines {len(batches.begun)}, wrong {wrong}")
    return 1 if lost or unexecuted or twice or untold or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
