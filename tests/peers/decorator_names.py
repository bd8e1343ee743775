"""The public names that PyTriton's module of decorators defines, as a program that prints them."""

from __future__ import annotations

import importlib
import json
import sys

module = importlib.import_module("pytriton.decorators")
home = module.__name__
members = {name: member for name, member in vars(module).items() if not name.startswith("_")}
own = [name for name, member in members.items() if getattr(member, "__module__", "") == home]
json.dump(sorted(own), sys.stdout)
