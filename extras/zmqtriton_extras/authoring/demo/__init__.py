"""`zmqtriton demo [DIRECTORY] [options]`: a server with example models, and commands to try.

The models are copied first, so that they can be edited and loaded again; existing files are kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

from zmqtriton.sdk.process import read_options
from zmqtriton.sdk.supervisor import OpenedServer
from zmqtriton_extras.authoring.example import copy_missing
from zmqtriton_extras.authoring.run import ctl_command

MODELS = Path(__file__).parent / "models"
DIRECTORY = "zmqtriton-demo"
#: Only this machine can connect, unless other addresses are chosen.
ADDRESSES = ("--http-address=127.0.0.1", "--grpc-address=127.0.0.1")


_HELP = f"""Usage: zmqtriton demo [directory] [options of the server]

Writes example models to the directory (default {DIRECTORY}), serves them on 127.0.0.1 and prints
commands to try. Existing files are kept, so the models can be edited. If the ports are taken:
--http-port=9000 --grpc-port=9001 --metrics-port=9002.
"""


def run_demo(words: list[str]) -> int:
    """Run the command and return the exit status."""
    from zmqtriton.sdk.supervisor import run

    if words[:1] in (["-h"], ["--help"]):
        sys.stdout.write(_HELP)
        return 0
    has_directory = bool(words) and not words[0].startswith("-")
    directory = Path(words[0] if has_directory else DIRECTORY)
    try:
        copy_missing(MODELS, directory)
    except OSError as error:
        sys.stderr.write(f"error: cannot write the demo's models: {error}\n")
        return 1
    typed = words[1:] if has_directory else words
    options = read_options(server_arguments(directory, typed), ADDRESSES)
    if isinstance(options, int):
        return options

    def show(server: OpenedServer) -> None:
        # not the option's port, since 0 means any port there; everything that is shown needs HTTP
        if server.http_port is not None:
            sys.stdout.write(guide(directory, f"{options.http_address}:{server.http_port}"))
            sys.stdout.flush()

    return run(options, on_open=show)


def server_arguments(directory: Path, words: list[str]) -> list[str]:
    """Return the demo's options, followed by the user's, which override them."""
    ours = [f"--model-repository={directory}"]
    said = " ".join(words)
    if "--model-control-mode" not in said:
        ours.append("--model-control-mode=explicit")
        if "--load-model" not in said:
            ours.append("--load-model=*")
    return [*ours, *words]


def guide(directory: Path, http: str) -> str:
    """Return the commands to try in another terminal; `http` is address and port."""
    numbers = ",".join(map(str, range(16)))
    ones = ",".join("1" * 16)
    ctl = ctl_command()
    return f"""
The models are in {directory}. In another terminal:

  curl -s {http}/v2/models/add_sub/infer -d '{{"inputs": [
    {{"name": "INPUT0", "shape": [1, 16], "datatype": "FP32", "data": [{numbers}]}},
    {{"name": "INPUT1", "shape": [1, 16], "datatype": "FP32", "data": [{ones}]}}]}}'

  curl -s {http}/v2/models/string_upper/infer -d '{{"inputs": [
    {{"name": "TEXT", "shape": [1, 2], "datatype": "BYTES", "data": ["hello", "world"]}}]}}'

`doubled` is an ensemble, add_sub called twice without any code:

  curl -s {http}/v2/models/doubled/infer -d '{{"inputs": [
    {{"name": "LEFT", "shape": [1, 16], "datatype": "FP32", "data": [{numbers}]}},
    {{"name": "RIGHT", "shape": [1, 16], "datatype": "FP32", "data": [{ones}]}}]}}'

`tokens` answers with a stream, one word each 0.3 seconds:

  curl -sN {http}/v2/models/tokens/generate_stream -d '{{"TEXT": "as it comes", "DELAY_MS": 300}}'

And from Python, after `pip install 'tritonclient[http]'`:

  import numpy as np, tritonclient.http as triton
  client = triton.InferenceServerClient("{http}")
  inputs = [triton.InferInput(name, [1, 16], "FP32") for name in ("INPUT0", "INPUT1")]
  for value in inputs:
      value.set_data_from_numpy(np.ones((1, 16), np.float32))
  print(client.infer("add_sub", inputs).as_numpy("OUTPUT0"))

`crashy` does what MODE says: 0 answers its process number, 1 exits, 2 makes a segmentation fault,
3 raises an exception, 4 hangs until it is replaced after 2 seconds. It comes back each time:

  curl -s {http}/v2/models/crashy/infer -d '{{"inputs": [
    {{"name": "MODE", "shape": [1], "datatype": "INT32", "data": [2]}}]}}'
  {ctl} status

A browser shows the models on http://{http}, and lets you try them. Edit
{directory}/add_sub/1/model.py, then `{ctl} load add_sub`. Ctrl-C here stops everything.

"""
