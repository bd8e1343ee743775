"""The environment as a log, and names of `pytriton.utils`."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pytest

from zmqtriton_addons.pytriton.check.env_checks import env_checks
from zmqtriton_addons.pytriton.utils.dataclasses import kwonly_dataclass
from zmqtriton_addons.pytriton.utils.distribution import get_root_module_path, is_editable_install


def test_the_environment_is_logged_without_values(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_TOKEN", "a-secret-of-mine")

    with caplog.at_level(logging.INFO):
        env_checks(logging.getLogger("check"))

    assert f"Distribution: numpy=={np.__version__}" in caplog.text
    assert "HF_TOKEN" in caplog.text
    assert "a-secret-of-mine" not in caplog.text
    assert "GPUs: " in caplog.text


def test_fields_are_set_by_name_alone() -> None:
    @kwonly_dataclass
    @dataclass
    class Point:
        x: int
        y: int = 2

    assert (1, 2) == (Point(x=1).x, Point(x=1).y)
    with pytest.raises(TypeError, match="can't be used with positional arguments"):
        Point(1)


def test_the_package_is_where_its_modules_are() -> None:
    assert (get_root_module_path() / "triton.py").exists()
    assert is_editable_install() is ("site-packages" not in str(get_root_module_path()))
