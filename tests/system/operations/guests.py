"""The add-on of test_guests.py: something of each kind, which notes that its host has used it.

The test puts it on the shelf of the extras, alone: of kinds that take one thing, it is the first.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, NamedTuple

from zmqtriton.sdk import AddOn, Option

#: Kinds of words, and what a host shows where it uses the word.
SHOWN = {
    "ctl.group": "Of guests:",
    "http.category": "guestly",
    "models.framework": "needs the module 'guest_framework'",
    "options.behind": "\nof guests:\n",
    "protocol.extension": "guest_extension",
    "page.files": "// of a guest",
    # one thing, and the add-on of metrics is before this one
    "embedded.scraper": "nv_inference_count{",
    "models.file": '{"GUEST_FILE": "of a guest"}',
}


def seen(kind: Any) -> None:
    with open(os.environ["ZT_GUESTS"], "a") as file:
        file.write(f"{kind}\n")


def _returns(value: Any, kind: Any) -> Any:
    """Return a function that notes the kind, and returns the value whatever it is asked."""

    def use(*arguments: Any) -> Any:
        seen(kind)
        return value

    return use


def step(gateway: Any) -> Any:
    def notes(ask: Any, request: Any) -> Any:
        seen("requests.step")
        return request

    return notes


class Samples:
    def __init__(self, gateway: Any, load: Any) -> None:
        pass

    async def run(self) -> Any:
        seen("metrics.samples")

    answer = staticmethod(_returns(None, "metrics.samples"))


def page_form(gateway: Any) -> Any:
    async def keep(accept: Any, form: Any, page: Any) -> Any:
        seen("metrics.page_form")
        return form, page

    return keep


def text(gateway: Any) -> Any:
    async def ask() -> Any:
        seen("metrics.text")
        return ""

    return ask


def example(config: Any, name: Any) -> Any:
    seen("models.example")
    return ""


class Module:
    """A module that a host asks for several functions."""

    TYPES = ()
    FOLDER = "guests"

    def __init__(self, kind: Any, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, _returns(value, kind))


tokens = Module("metrics.tokens", made_tokens={})
settings = Module("models.settings", problems=(), read=None)
trial = Module("models.trial", problems=(), read=None, again="")
variables = Module("options.variables", defaults={}, check=None)
stores = Module("repository.stores", claim_parent=os.environ.get("TMPDIR", "/tmp"), credentials=())
findings = Module("diagnosis.model", read=None, findings=(), notes=())

#: Functions that are done when they have been called, by their kind.
CALLED: dict[str, Any] = {
    "requests.division": None,
    "requests.steps_of_model": (),
    "models.problems": (),
    "models.in_file": (),
    "models.implied": {},
    "options.check": "",
    "diagnosis.file": (),
    "diagnosis.version": (),
    "diagnosis.config": (),
    "diagnosis.configs": (),
    "diagnosis.environment": (),
    "diagnosis.chapters": (),
    "broker.placement": None,
    "run.requests": (("", "a request of guests"),),
    "new.form": 0,
    "embedded.caller": None,
}
globals().update({kind.replace(".", "_"): _returns(v, kind) for kind, v in CALLED.items()})


def process_groups() -> Any:
    seen("supervisor.process_groups")
    raise OSError("guests have none")


def feature(core: Any) -> Any:
    from zmqtriton.supervisor.control.verbs import Verb
    from zmqtriton.supervisor.features.feature import Feature

    class Guest(Feature):
        def __init__(self, core: Any) -> None:
            super().__init__(core)
            self._tasks = core.tasks
            seen("supervisor.feature")

        @property
        def verbs(self) -> Any:
            return {"guests.task": Verb(self._ask)}

        async def _ask(self, call: Any) -> Any:
            for generation in self._server.generations.values():
                for instance in generation.instances:
                    return {"answer": str(await self._tasks.ask(instance, "guest", {}, 10.0))}

    return Guest(core)


def extension() -> Any:
    from zmqtriton_frontends.http_api.extension import HttpExtension

    def routes(gateway: Any) -> Any:
        seen("http.extension")
        return []

    return HttpExtension(routes)


def client_file() -> Any:
    return "GUEST_FILE", "guest.txt", "the file of a guest"


_MADE = {"EXTENSION": extension, "CLIENT_FILE": client_file}


def __getattr__(name: Any) -> Any:
    if name in _MADE:
        return _MADE[name]()
    raise AttributeError(name)


class Options(NamedTuple):
    guest: Annotated[str, Option("Nothing.")] = ""


_P = "zmqtriton_extras.guests:"
ADDON = AddOn(
    "guests",
    title="of guests",
    options=Options,
    parameters={"GUEST": "of a guest", "GUEST_FILE": "of a guest"},
    offers={
        **{kind: f"{_P}{kind.replace('.', '_')}" for kind in CALLED},
        "requests.step": f"{_P}step",
        "metrics.samples": f"{_P}Samples",
        "metrics.page_form": f"{_P}page_form",
        "metrics.text": f"{_P}text",
        "metrics.tokens": f"{_P}tokens",
        "models.example": f"{_P}example",
        "models.settings": f"{_P}settings",
        "models.trial": f"{_P}trial",
        "models.file": f"{_P}CLIENT_FILE",
        "models.backend": {"guest": ".backend"},
        "models.framework": {"guest": "guest_framework"},
        "models.in_file": {"guest": f"{_P}models_in_file"},
        "models.implied": {"guest": f"{_P}models_implied"},
        "options.variables": f"{_P}variables",
        "options.behind": "GRPC",
        "repository.stores": f"{_P}stores",
        "protocol.extension": "guest_extension",
        "diagnosis.model": f"{_P}findings",
        "broker.placement": {"GUEST": f"{_P}broker_placement"},
        "new.form": {"guest": f"{_P}new_form"},
        "supervisor.feature": f"{_P}feature",
        "supervisor.process_groups": f"{_P}process_groups",
        "stub.task": {"guest": ".task:run"},
        "http.extension": f"{_P}EXTENSION",
        "http.category": "guestly",
        "page.files": ".files",
        "ctl.group": {"Of guests": "servers"},
    },
)
