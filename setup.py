"""A wheel has no tests; all else stands in setup.cfg."""

from __future__ import annotations

from setuptools import setup
from setuptools.command.build_py import build_py


class WithoutTests(build_py):
    """Leave out the tests that extras have beside their sources."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.packages = [name for name in self.packages or () if "tests" not in name.split(".")]


setup(cmdclass={"build_py": WithoutTests})
