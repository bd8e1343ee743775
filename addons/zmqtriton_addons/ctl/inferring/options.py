"""The options of commands that ask a model, and the request that they describe."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from zmqtriton.control_client import Client
from zmqtriton_addons.ctl import MODEL, seconds_option
from zmqtriton_addons.ctl.http_service import HttpService, find_url, parse_headers
from zmqtriton_addons.ctl.inferring.requests import PreparedRequest, model_path, prepare, read_json

_PARAMETERS = (
    click.argument("model", type=MODEL),
    click.argument("inputs", nargs=-1, metavar="[NAME=VALUE]..."),
    click.option(
        "--version",
        type=click.IntRange(1),
        metavar="N",
        help="Version; by default the server's.",
    ),
    click.option(
        # --json as in earlier versions, though it chooses the output elsewhere
        "--inputs",
        "--json",
        "file",
        metavar="FILE",
        help="Read the inputs from this file of JSON; - is stdin.",
    ),
    click.option(
        "--zeros",
        "fill",
        flag_value="zeros",
        default="",
        help="Fill inputs that are not given with zeros.",
    ),
    click.option("--random", "fill", flag_value="random", help="Fill them by chance."),
    click.option(
        "--url",
        default="",
        metavar="URL",
        help="Where to ask by HTTP, if not at the port without TLS. $SSL_CERT_FILE has the CA for "
        "https.",
    ),
    click.option("--header", "-H", multiple=True, metavar="'NAME: VALUE'", help="Header to send."),
    seconds_option(
        "--timeout", default=60.0, takes_zero=False, text="Seconds that a request may take."
    ),
)


class RequestOptions(NamedTuple):
    """The choices of the user about a request."""

    model: str
    inputs: tuple[str, ...]
    version: int | None
    #: With the inputs as JSON; None for none.
    file: str | None
    #: Other inputs are filled with "zeros" or "random" values; "" leaves them out.
    fill: str | None
    url: str
    header: tuple[str, ...]
    timeout: float

    @property
    def path(self) -> str:
        return model_path(self.model, self.version)

    @property
    def headers(self) -> dict[str, str]:
        """Parse the headers. Raises InvalidArgument."""
        return parse_headers(self.header)

    def service(self, client: Client) -> HttpService:
        """Return where to ask. Raises InvalidArgument, and NotFound if the server has no port."""
        return HttpService(self.url or find_url(client), self.headers, self.timeout)

    def prepare(self, service: HttpService) -> PreparedRequest:
        """Make the request. Raises InvalidArgument, and what the service raises."""
        document = None if self.file is None else read_json(self.file)
        return prepare(service, self.path, self.inputs, document, self.fill or "")


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets the parameter `request_options`."""

    @functools.wraps(command)
    def run(*words: Any, **parameters: Any) -> None:
        of_request = {name: parameters.pop(name) for name in RequestOptions._fields}
        command(*words, request_options=RequestOptions(**of_request), **parameters)

    for add in reversed(_PARAMETERS):
        run = add(run)
    return run
