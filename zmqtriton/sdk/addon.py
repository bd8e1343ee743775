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
    """An option of the server, which is in `--help`, in files of options and in variables, too.

    It annotates a field of the NamedTuple that has an add-on's options. The field has the name, its
    type and the default. The type is `bool`, `int` or `float` of 0 or more, `str`, or `tuple` for
    values that the user gives one at a time.
    """

    help: str
    #: Word for the value in `--help`; by default the name of the type.
    metavar: str = ""
    #: Reference of a function that reads a text, and raises `BadValue`; "": the type reads it.
    read: str = ""
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


class Offer(NamedTuple):
    """A thing that an add-on offers while an option is on."""

    reference: str
    on: str


#: The things that an add-on offers of a kind: one, several, or some with names.
Offered = str | Offer | tuple[str | Offer, ...] | Mapping[str, str]


class AddOn(NamedTuple):
    """An add-on; what it adds to a host is among its offers."""

    name: str
    #: The name of the group of its options; by default that of the add-on.
    title: str = ""
    #: Add-ons without which it is left out.
    needs: tuple[str, ...] = ()
    #: Names of add-ons whose offers come before.
    after: tuple[str, ...] = ()
    #: A NamedTuple; each field is annotated with an `Option`, and has a default.
    options: type[tuple[Any, ...]] | None = None
    #: Parameters of config.pbtxt, and what each is good for.
    parameters: Mapping[str, Parameter | str] = {}
    process: Process | None = None
    ports: tuple[Port, ...] = ()
    #: Commands of `zmqtriton`.
    commands: Mapping[str, Command | str] = {}
    #: Commands of `zmqtriton-ctl`: commands of click.
    ctl: Mapping[str, str] = {}
    #: Modules below `zmqtriton` that programs import, such as `greeting`, and single names, such as
    #: `Greeting` and `testing.greeted`; a reference without an attribute is of a module.
    public: Mapping[str, str] = {}
    #: Things for hosts, by kinds; a host has each of its kinds as a `Hook`, which says their type.
    offers: Mapping[str, Offered] = {}
