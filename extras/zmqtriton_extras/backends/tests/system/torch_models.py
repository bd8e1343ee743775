"""Files of PyTorch for tests; imported where it is installed."""

from __future__ import annotations

import linecache
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

#: TorchScript reads a class's text, so that it has its own annotations.
MODULES = """
from typing import Dict, List, Optional, Tuple

import torch


class Less(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, z: Optional[torch.Tensor] = None):
        if z is not None:
            return x - y, z
        return x - y, x


class Named(torch.nn.Module):
    def forward(self, given: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
        return {"LESS": given["X"] - given["Y"], "MORE": given["X"] + given["Y"]}


class Summed(torch.nn.Module):
    def forward(self, several: List[torch.Tensor]) -> torch.Tensor:
        return torch.stack(several).sum(0)


class Summing(torch.nn.Module):
    def forward(self, VALUE: torch.Tensor, BEFORE: torch.Tensor, READY: torch.Tensor):
        total = READY * (BEFORE + VALUE)
        return total, total


class Words(torch.nn.Module):
    def forward(self, words: List[str]) -> List[str]:
        found: List[str] = []
        for word in words:
            found.append(word.upper() if word != "\u00e4" else "\u00c4")
        return found


class Doubled(torch.nn.Module):
    def forward(self, x):
        return x + x


class Scaled(torch.nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor))

    def forward(self, x):
        return torch.mul(x, self.factor)


class Raising(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones(2, 3) @ x
"""
#: A model.py with a class, whose weights may lie beside it.
SCALE = """
import torch


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.factor * x
"""


def module(name: str, *arguments: Any) -> Any:
    """An object of a class of MODULES."""
    file = "<modules of tests>"
    linecache.cache[file] = (len(MODULES), None, MODULES.splitlines(keepends=True), file)
    space: dict[str, Any] = {"__name__": "modules_of_tests"}
    exec(compile(MODULES, file, "exec"), space)
    return space[name](*arguments)


def write_script(path: Path, name: str, *arguments: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit")  # it is deprecated
        torch.jit.script(module(name, *arguments)).save(str(path))


def write_program(path: Path) -> None:
    """`Less` as torch.export writes it, for any number of rows of two."""
    path.parent.mkdir(parents=True, exist_ok=True)
    inputs = (torch.ones(3, 2), torch.ones(3, 2))
    rows = {0: torch.export.Dim.AUTO}
    program = torch.export.export(module("Less"), inputs, dynamic_shapes={"x": rows, "y": rows})
    torch.export.save(program, path)
