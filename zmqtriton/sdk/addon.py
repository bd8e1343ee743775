"""The declaration of an add-on: one value, `ADDON`, in the `__init__` of its package.

Every start of a server and every command reads all of them, so such a file imports this module and
nothing else. A reference is `module:attribute` or `module`; with a dot before it, it is of the
add-on's own package. It is imported when it is used.

A package that models or programs import, some in Pythons that have nothing else of the server, has
its declaration in `declaration.py` in place of `__init__`.

An add-on of another package is named by an entry point of the group `zmqtriton.addons`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

#: The group of entry points that name the add-ons of other packages.
GROUP = "zmqtriton.addons"
#: Value of `after` for an add-on that comes after all others without this value.
ALL = "*"


class Option(NamedTuple):
    """An option of the server, which is in `--help`, in files of options and in variables, too."""

    #: Name on the command line, without dashes: `greeting`, `greeting-group`.
    name: str
    #: Type of the value: `bool`, `int` of 0 or more, `float`, `str`, or `tuple` for texts that the
    #: user gives one at a time; or the reference of a function that reads a text, and raises
    #: `BadValue`.
    kind: type | str
    default: Any
    help: str
    #: Word for the value in `--help`; by default the name of the kind.
    metavar: str = ""
    #: True if each further occurrence adds a value; always so for a `tuple`.
    repeats: bool = False
    #: The reason why this server accepts the option and ignores it.
    ignored: str = ""
    #: The group of options in `--help` and the reference; by default the add-on's title.
    group: str = ""
    #: Name of another option that must be given, too, if this one is.
    requires: str = ""
    #: True if the value may name a store; models do not get the credentials of stores.
    is_place: bool = False
    #: True if only the process of the add-on gets the value.
    is_secret: bool = False

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")


class Process(NamedTuple):
    """A process of the server that runs a module, with `--lifeline FD` on its command line."""

    module: str
    #: The option that turns it on; "": it always runs.
    on: str = ""
    #: Name of the process, and of its socket in the runtime directory; by default the add-on's
    #: name.
    name: str = ""
    #: Name of the process for people.
    title: str = ""
    #: True if clients on this machine connect to it.
    has_socket: bool = True
    #: The option that admits a group of users; "": the server's own user alone connects.
    group: str = ""
    #: The option that requires keys for some verbs; "": its clients were checked by HTTP, whose
    #: tokens it knows.
    restrictions: str = ""
    #: True if it serves requests: the server opens with it, once the process says that it is open.
    is_serving: bool = False
    #: True if others of the server's processes send to it until they end.
    ends_last: bool = False
    #: True if it tells others, such as balancers, if the server is ready: also when that has died.
    tells_others: bool = False
    #: True if others start it, one for each thing to do, and not the server at its start.
    is_on_demand: bool = False


class Port(NamedTuple):
    """A TCP port that a process of the core serves for the add-on, too."""

    #: Name of the port's socket.
    name: str
    #: Name of the port's service for people.
    title: str
    #: The option with its number.
    number: str
    #: Function that serves the port. For `http`, it takes `EndpointParts` and returns the
    #: application of ASGI that answers. For `metrics`, it takes a gateway and returns an object
    #: with the coroutine functions `start`, which gets the bound socket, and `stop`.
    serve: str
    #: The option that turns the port on; "": the port is on if it has a number.
    on: str = ""
    #: The process that serves it, at whose address it is: `http` or `metrics`.
    of: str = "http"
    #: Name of the port's requests in errors of the command line; by default its title.
    requests: str = ""
    #: The option with a range; while it is set, all other ports must be in this range.
    range_of_others: str = ""


class ChatTemplate(NamedTuple):
    """The file in a model's directory whose text frontends get with the model, for chats."""

    #: The parameter of config.pbtxt that names it, and its name without that.
    parameter: str
    file: str
    #: The option that must be on for the file to be read.
    on: str


class Parameter(NamedTuple):
    """A parameter of config.pbtxt, as the reference has it."""

    #: Values that it takes, with their bounds.
    takes: str
    default: str
    about: str


class Command(NamedTuple):
    """A command of `zmqtriton`: a function that takes the words after it and returns the status."""

    run: str
    #: Usage and purpose of the command, as `--help` has them; by default its name.
    usage: str = ""


class Backend(NamedTuple):
    """A package with a `model.py`, which runs models whose configuration names the backend."""

    package: str
    #: The module that it imports, and the packages that bring that.
    module: str = ""
    brought_by: str = ""
    #: Takes the path of a Python file, and returns the names of the models in it: () for a file of
    #: another kind. The backend runs such a file without a configuration that names it.
    models_in: str = ""


class TaskCode(NamedTuple):
    """A function that instances run, and the file that has it."""

    file: str
    function: str


class AddOn(NamedTuple):
    """The kinds of things that an add-on may have; none needs another."""

    name: str
    options: tuple[Option, ...] = ()
    #: The name of the group of its options; by default that of the add-on.
    title: str = ""
    #: The group of options behind which a new one stands; by default it is among the last.
    behind: str = ""
    #: Name among the extensions of the protocol, while the option `extension_on` is true.
    extension: str = ""
    extension_on: str = ""
    #: Returns what is wrong with the options, or ""; takes them by field, and is asked if the
    #: process is on, or has no option that turns it on.
    check: str = ""
    #: Parameters of config.pbtxt, and what each is good for.
    parameters: Mapping[str, Parameter | str] = {}
    #: Yields the `Problem`s of a configuration, with which no server serves the model.
    problems: str = ""
    #: Yields warnings of a configuration, for `zmqtriton check`.
    warnings: str = ""
    #: Takes the path of a model's Python file, and yields its `Problem`s for `zmqtriton check`. It
    #: may import the file in a process of its own.
    file_problems: str = ""
    #: A module with `problems(config)`, `read(config)`, and the `TYPES` of what that returns.
    model_settings: str = ""
    #: Functions that take a gateway and return a step, which each request of a frontend takes; if
    #: the add-on has a process, while that is on.
    step: str = ""
    #: `HttpExtension`s of the HTTP frontend.
    http: str | tuple[str, ...] = ()
    #: Names of add-ons whose extensions come before.
    after: tuple[str, ...] = ()
    process: Process | None = None
    ports: tuple[Port, ...] = ()
    #: A module for variables of the environment: `defaults(environment)` returns the options that
    #: have other defaults there, by field, and `check(value_of, environment)` asks for options by
    #: field; both raise `BadValue`.
    variables: str = ""
    #: Categories of its routes, beside the core's, that `--http-restricted-api` may name.
    http_categories: tuple[str, ...] = ()
    #: `Feature`s of the supervisor.
    feature: str | tuple[str, ...] = ()
    #: Functions that an instance runs when a feature asks for them by `StubTasks`, by name: in a
    #: thread beside the model, in the model's Python (3.8 and newer), so that its module imports
    #: Python's library alone. One takes the instance, as a `Subject` of tasks, and the feature's
    #: arguments, and returns what becomes JSON.
    tasks: Mapping[str, str] = {}
    #: Commands of `zmqtriton-ctl`: commands of click.
    ctl: Mapping[str, str] = {}
    commands: Mapping[str, Command | str] = {}
    #: Makes, of a gateway, the coroutine function that returns its text for the page of metrics; if
    #: the add-on has a process, while that is on.
    metrics: str = ""
    backends: Mapping[str, Backend | str] = {}
    #: Takes a client, a model and a version, and returns why that is not ready.
    explanation: str = ""
    #: A module with more findings for `zmqtriton-ctl explain`: `read(reader, facts)` asks a server,
    #: `findings(facts, read)` returns causes, `notes(facts, read)` the rest.
    findings: str = ""
    #: Yields the problems between models, each with its model, by the configurations of all.
    conflicts: str = ""
    #: Modules below `zmqtriton` that programs import, such as `greeting`, and single names, such as
    #: `Greeting` and `testing.greeted`; a reference without an attribute is of a module.
    public: Mapping[str, str] = {}
    #: Forms of `zmqtriton new`, by the word after it and an option that must be given; `NAME` is
    #: the form for a name alone.
    new: Mapping[str, str] = {}
    #: Yields the requests that `zmqtriton run` prints for a model in place of one with tensors:
    #: paths, and JSON for a POST; or "" and a comment, perhaps with the server's "{url}" in it.
    #: Takes the model's name, its configuration and the options.
    requests: str = ""
    #: Add-ons without which it is left out.
    needs: tuple[str, ...] = ()

    # Kinds of which a server has one each; the first add-on that fills one counts.
    #: Carries RPCs by another library, where `--grpc-transport` has the add-on's name.
    transport: str = ""
    #: Makes a scheduler of the broker place requests by what they say.
    placement: str = ""
    #: A module for a version that is tried beside the one that serves: `problems(config)`,
    #: `read(config)`, the `TYPES` of what that returns, `FOLDER` of decisions in the state
    #: directory, and `again(model, version)`, which says how a version is tried again.
    trial: str = ""
    #: Divides the requests to a model between two versions.
    division: str = ""
    #: Returns the steps of the requests to one version.
    model_steps: str = ""
    #: Makes the kernel limit the processes of models.
    process_groups: str = ""
    #: A module that knows addresses of repositories.
    stores: str = ""
    #: Returns an example of the JSON that a model reads in a text input, or "", by the model's
    #: configuration and the name of the input.
    example: str = ""
    #: A module with `made_tokens(directory)`: by `model:version`, the tokens that the models of the
    #: server with this runtime directory have made.
    tokens: str = ""
    #: Keeps samples of the metrics, and answers for them.
    samples: str = ""
    #: Chooses the form of the page of metrics.
    page_form: str = ""
    chat_template: ChatTemplate | None = None
    #: Takes a model of `zmqtriton.connect()`, and returns the function that the connection has by
    #: the model's name; None for a model that is not for it.
    caller: str = ""
