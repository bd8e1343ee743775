"""`zmqtriton protos DIRECTORY`: writes the .proto files, and says how to make clients from them."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from importlib.resources import files
from pathlib import Path

#: The files of what clients call; the others of the package are for the server itself.
NAMES = ("grpc_service.proto", "model_config.proto", "health.proto")

_HELP = (
    "Write the .proto files of the gRPC API, which is Triton's, and print a line for each of "
    "Python, Go and JavaScript that makes clients of them."
)


def run_protos(words: list[str]) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(prog="zmqtriton protos", description=_HELP)
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="made if it is not there")
    directory: Path = parser.parse_args(words).directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            (directory / name).write_bytes((files("zmqtriton_protos") / name).read_bytes())
    except OSError as error:
        sys.stderr.write(f"error: {directory}: {error.strerror}\n")
        return 1
    sys.stdout.write(_guide(directory))
    return 0


def _guide(directory: Path) -> str:
    names = " ".join(NAMES)
    packages = ",".join(f"M{name}=./{Path(name).stem}" for name in NAMES[2:])
    packages = ",".join([*(f"M{name}=./inference" for name in NAMES[:2]), packages])
    folder = shlex.quote(str(directory))
    return f"""\
{directory} has {", ".join(NAMES[:-1])} and {NAMES[-1]}. Clients are made of them in the
current directory:

Python (needs: pip install grpcio-tools)

  python -m grpc_tools.protoc -I {folder} --python_out=. --grpc_python_out=. {names}

Go (needs: protoc, protoc-gen-go and protoc-gen-go-grpc)

  protoc -I {folder} --go_out=. --go-grpc_out=. --go_opt={packages} --go-grpc_opt={packages} \
{names}

JavaScript (needs: npm install @grpc/grpc-js @grpc/proto-loader), which reads them when it runs

  const files = {{ includeDirs: [{json.dumps(str(directory))}] }};
  const {{ inference }} = require("@grpc/grpc-js").loadPackageDefinition(
      require("@grpc/proto-loader").loadSync("grpc_service.proto", files));
"""
