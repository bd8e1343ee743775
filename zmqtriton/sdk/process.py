"""Processes and commands of add-ons: services, clients, options, the machine.

`zmqtriton-ctl`, commands of `zmqtriton`, and processes import this. `Service` is for those that
answer, `connect` and `control_client` are for those that ask.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton import (
        addons as addons,
        options as options,
        runtime_places as runtime_places,
        standard_output as standard_output,
        systemd as systemd,
    )
    from zmqtriton.commit import full_version as full_version
    from zmqtriton.console import table as table
    from zmqtriton.control_client import (
        Client as Client,
        NoServerError as NoServerError,
        ServerIdentity as ServerIdentity,
        ServerSelector as ServerSelector,
    )
    from zmqtriton.embedded import connection as connection
    from zmqtriton.embedded.hosted_process import report as report
    from zmqtriton.embedded.model import Model as Model
    from zmqtriton.embedded.parent import connect as connect
    from zmqtriton.embedded.requests import (
        InferenceRequest as InferenceRequest,
        InferenceResponse as InferenceResponse,
    )
    from zmqtriton.file_names import write_obstacle as write_obstacle
    from zmqtriton.host.gpus import Gpu as Gpu
    from zmqtriton.host.capacity import available_bytes as available_bytes, core_quota as core_quota
    from zmqtriton.start.ports import describe_listener as describe_listener
    from zmqtriton_floor import prctl as prctl, spans as spans
    from zmqtriton_floor.lazy_names import load_reference as load_reference
    from zmqtriton_floor.lifeline import Lifeline as Lifeline
    from zmqtriton_floor.process import zmq_sockets as zmq_sockets
    from zmqtriton_floor.process.loop_turns import BOUNDS_S as BOUNDS_S
    from zmqtriton_floor.settings.offers import Hook as Hook
    from zmqtriton_floor.tool_listener import ToolListener as ToolListener, peer_of as peer_of
    from zmqtriton_frontends.process.peer_user import user_of_client as user_of_client
    from zmqtriton_frontends.serving.listener import address_of as address_of
    from zmqtriton_frontends.serving.process import (
        Service as Service,
        run as run,
        run_local as run_local,
    )
    from zmqtriton.otlp_destination import Destination as Destination
    from zmqtriton.embedded.server import Server as Server
    from zmqtriton.long_steps import StepProgress as StepProgress
    from zmqtriton_floor.endpoints import local_service_path as local_service_path
    from zmqtriton_floor.process.wall_clock import offset_ns as offset_ns
    from zmqtriton.command_line import read_options as read_options
else:
    __getattr__ = lazy_names(__name__)
