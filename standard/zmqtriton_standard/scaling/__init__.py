"""Scaling: how many instances a model has, as an operator says or as its load needs."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "scaling",
    model_settings=".limits",
    feature=".autoscaler:Autoscaler",
)
