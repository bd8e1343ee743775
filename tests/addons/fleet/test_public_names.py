"""The names of the fleet that scripts import."""

from __future__ import annotations

import importlib

from zmqtriton_addons.fleet import building


def test_scripts_import_the_settings_under_their_documented_name() -> None:
    public = importlib.import_module("zmqtriton.fleet.building")

    assert public.Settings is building.Settings
    assert public.build_fleet is building.build_fleet
