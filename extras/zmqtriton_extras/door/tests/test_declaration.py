"""The door's rows in the tables of add-ons, by which the core has its options and its process."""

from __future__ import annotations

import pytest

from tests.supervisor.settings import frontend_settings, settings
from zmqtriton import roles
from zmqtriton.options.parser import parse
from zmqtriton.options.result import Options
from zmqtriton.options.values import OptionError, Restriction, Setting
from zmqtriton.supervisor.control.server_status import describe_server
from zmqtriton.supervisor.machine.process_settings import read_policy
from zmqtriton.supervisor.machine.processes.commands import role_command

_KEY = Restriction(("trace",), "k", "door-secret")


def options(*words: str) -> Options:
    return parse(["--model-repository=/models", *words])


def test_its_process_is_started_if_the_option_says_so_and_has_the_socket() -> None:
    assert "door" not in read_policy(options()).frontend_roles
    assert "door" in read_policy(options("--zmq-door")).frontend_roles
    assert (role_command("door", 3, {"": 4})[1:]) == [
        "-m",
        "zmqtriton_extras.door.process",
        "--lifeline",
        "3",
        "--socket",
        "4",
    ]


@pytest.mark.parametrize("word", ["--zmq-door-group=staff", "--zmq-door-restricted=trace:k=v"])
def test_its_options_need_it(word: str) -> None:
    with pytest.raises(OptionError) as refused:
        options(word)

    name = word.partition("=")[0]
    text = f"Error: Use of '{name}' requires setting '--zmq-door' as well."
    assert text == str(refused.value)
    assert options("--zmq-door", word).value("zmq_door")


def test_a_verb_belongs_to_one_group() -> None:
    with pytest.raises(OptionError, match=r"restricted verb 'health' can not be specified in mul"):
        options("--zmq-door", *(f"--zmq-door-restricted=health:{key}=1" for key in "ab"))


def test_its_process_alone_is_told_its_keys_and_no_tokens() -> None:
    changes = {"zmq_door": True, "zmq_door_restricted": (_KEY,), "tokens": "/path"}

    assert frontend_settings("door", **changes).access[1::-1] == ((_KEY,), "")
    assert frontend_settings("grpc", **changes).access.restrictions == ()


def test_its_requests_share_the_cache_of_other_clients() -> None:
    server_settings = settings(zmq_door=True, cache_config=(Setting("local", "size", "1"),))

    assert server_settings.cache_secrets["http"] == server_settings.cache_secrets["door"]


def test_the_status_has_its_address() -> None:
    addresses = [
        describe_server(settings(zmq_door=is_on), "/run/z", "ready")["addresses"]
        for is_on in (False, True)
    ]

    assert dict(addresses[1].items() - addresses[0].items()) == {"door": "/run/z/door"}


def test_it_serves_clients_as_http_and_grpc_do() -> None:
    for group in (
        roles.SERVING_ROLES,
        roles.READINESS_ROLES,
        roles.CLIENT_FACING_ROLES,
        roles.CATALOGUE_ROLES,
        roles.BROKERED_ROLES,
    ):
        assert "door" in group
    assert "door" in settings().broker.serving_roles
