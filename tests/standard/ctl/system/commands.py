"""Commands of `zmqtriton-ctl` in the process of the test: a tenth of the time of one of its own."""

from __future__ import annotations

from click.testing import CliRunner, Result

from tests.support.server import Server
from zmqtriton.ctl.main import cli

#: Has the server's sockets where `ctl` looks for them.
OPTION = "--runtime-directory=@DIRECTORY@/run"


def place(server: Server) -> str:
    """Return the option that names a server with OPTION."""
    return f"--runtime-directory={server.directory.parent}/run"


def ctl(server: Server, *words: str, text: str = "") -> Result:
    """Run a command to its end, with `text` on its stdin."""
    return CliRunner().invoke(cli, [place(server), *words], input=text, catch_exceptions=False)
