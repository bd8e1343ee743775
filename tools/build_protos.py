"""Compiles the .proto files of zmqtriton_protos into descriptors.pb, which the package loads.

Run it by hand after a change of a .proto file; it needs grpcio-tools, the server does not.
A test compares its result with the file in the repository.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "frontends" / "zmqtriton_protos"
SOURCES = (
    "model_config.proto",
    "grpc_service.proto",
    "health.proto",
    "reflection.proto",
    "otlp.proto",
)


def compile_protos(output: Path) -> None:
    """Write the FileDescriptorSet of all sources, dependencies first, to `output`."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"--proto_path={PACKAGE}",
            f"--descriptor_set_out={output}",
            *SOURCES,
        ],
        check=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PACKAGE / "descriptors.pb")
    compile_protos(parser.parse_args().output)


if __name__ == "__main__":
    main()
