"""The settings of processes, made of options as the supervisor does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from zmqtriton.options import Options
from zmqtriton.supervisor.machine.process_settings import Machine, settings_of
from zmqtriton.supervisor.settings import Settings
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.settings.codec import decode
from zmqtriton_floor.settings.frontends import FrontendSettings

#: Enough memory for what tests do.
_CLIENT_BYTES = 1 << 30


def options_with(**changes: Any) -> Options:
    """Return options, of the core and of add-ons, by their fields."""
    own = {field.name for field in dataclasses.fields(Options)}
    of_add_ons = {name: changes.pop(name) for name in changes.keys() - own}
    options = Options(**changes)
    assert of_add_ons.keys() <= options.of_add_ons.keys()
    return dataclasses.replace(options, of_add_ons={**options.of_add_ons, **of_add_ons})


def settings(**changes: Any) -> Settings:
    """Return the settings of a server with these options, and facts of a Machine."""
    machine = {name: changes.pop(name) for name in Machine._fields if name in changes}
    changes.setdefault("client_memory_byte_size", _CLIENT_BYTES)
    return settings_of(options_with(**changes), Machine(**machine))


def frontend_settings(role: str, **changes: Any) -> FrontendSettings:
    """Return what a frontend of this role is told."""
    return decode(FrontendSettings, settings(**changes).document(role))


def then(promise: Promise[Any], call: Callable[[Any], object]) -> None:
    """Call a function with the value when it is there; never, if it fails."""
    promise.at_end(lambda: None if promise.error else call(promise.value))


def failed(error: ZmqTritonError) -> Promise[Any]:
    """Return a promise that has failed."""
    promise = Promise[Any]()
    promise.fail(error)
    return promise
