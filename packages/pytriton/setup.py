"""Writes PyTriton's modules when the distribution is built, and not before.

Each has the names of the module of that name below `zmqtriton.pytriton`. They are files, and not
found by a hook of the import, so that type checkers and editors find them, too.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PACKAGES = ("check", "client", "model_config", "proxy", "utils")
MODULES = (
    "constants",
    "decorators",
    "exceptions",
    "triton",
    *(f"check.{name}" for name in ("add_sub", "env_checks", "utils")),
    *(
        f"client.{name}"
        for name in ("asyncio_utils", "auth", "client", "exceptions", "utils", "warnings")
    ),
    *(
        f"model_config.{name}"
        for name in (
            "common",
            "generator",
            "model_config",
            "parser",
            "tensor",
            "triton_model_config",
        )
    ),
    *(f"proxy.{name}" for name in ("telemetry", "types")),
    *(
        f"utils.{name}"
        for name in ("dataclasses", "distribution", "endpoint_utils", "logging", "workspace")
    ),
)
TEXT = '"""The names of `{module}`."""\n\nfrom {module} import *\n'


class BuildModules(build_py):
    def run(self) -> None:
        super().run()
        for name in (*PACKAGES, *MODULES):
            path = Path(self.build_lib, "pytriton", *name.split("."))
            path = path / "__init__.py" if name in PACKAGES else path.with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(TEXT.format(module=f"zmqtriton.pytriton.{name}"), "utf-8")


setup(cmdclass={"build_py": BuildModules})
