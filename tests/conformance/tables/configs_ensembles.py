"""Ensembles, good and bad: the graph of their steps, and whether their members fit.

Part of the table `configs`. Members are the first rows; they are loaded with their ensembles.
"""

from __future__ import annotations

from tests.conformance.repositories import Written
from tests.conformance.tables.loading import GOOD, PYTHON

_PLATFORM = 'platform: "ensemble"\n'


def tensor(section: str, name: str, type: str = "FP32", dims: str = "1", more: str = "") -> str:
    return f'{section} [ {{ name: "{name}" data_type: TYPE_{type} dims: [ {dims} ] {more} }} ]\n'


def step(model: str, inputs: str, outputs: str, version: str = "-1") -> str:
    """A step; "A=x B=y" maps the tensors A and B of the model. No version is 0, not the newest."""
    text = f'step [ {{ model_name: "{model}" '
    if version:
        text += f"model_version: {version} "

    for section, pairs in (("input_map", inputs), ("output_map", outputs)):
        for pair in pairs.split():
            key, _, value = pair.partition("=")
            text += f'{section} {{ key: "{key}" value: "{value}" }} '
    return text + "} ]\n"


def steps(*texts: str) -> str:
    return "ensemble_scheduling {\n" + "".join(texts) + "}\n"


X, Y = tensor("input", "X"), tensor("output", "Y")
_ONE = steps(step("mem", "A=X", "B=Y"))

_MEMBER = tensor("input", "A") + tensor("output", "B")


def member(name: str, config: str, why: str) -> tuple[Written, str, str]:
    return Written(name, PYTHON + config, {"1/model.py": GOOD}), "E51", why


def ensemble(name: str, config: str, why: str, id: str = "E50") -> tuple[Written, str, str]:
    return Written(name, _PLATFORM + config, {"1/README": ""}), id, why


ENSEMBLES = (
    member("mem", _MEMBER, "a member"),
    member("mem_batching", _MEMBER + "max_batch_size: 4\n", "with batches"),
    member("mem_int", tensor("input", "A", "INT32") + tensor("output", "B", "INT32"), "of int"),
    member("mem_wide", tensor("input", "A", "FP32", "2") + tensor("output", "B"), "of two"),
    member(
        "mem_optional",
        _MEMBER + tensor("input", "O", more="optional: true"),
        "with an optional input",
    ),
    member("mem_two", _MEMBER + tensor("input", "C"), "with two inputs"),
    member("mem_decoupled", _MEMBER + "model_transaction_policy { decoupled: true }\n", ""),
    ensemble("ens_good", X + Y + _ONE, "one step"),
    ensemble(
        "ens_chain",
        X + Y + steps(step("mem", "A=X", "B=m"), step("mem", "A=m", "B=Y", "-1")),
        "two steps, of the newest version",
        "E57",
    ),
    ensemble(
        "ens_version",
        X + Y + steps(step("mem", "A=X", "B=Y", "1")),
        "of a version",
        "E57",
    ),
    ensemble(
        "ens_version_gone",
        X + Y + steps(step("mem", "A=X", "B=Y", "7")),
        "of a version that there is not",
        "E57",
    ),
    ensemble("ens_version_unset", X + Y + steps(step("mem", "A=X", "B=Y", "")), "of none", "E57"),
    ensemble("ens_unset", X + Y, "no scheduling"),
    ensemble("ens_no_step", X + Y + steps(), "no step"),
    ensemble("ens_no_model", X + Y + steps("step [ { } ]\n"), "no model"),
    ensemble("ens_no_inputs", X + Y + steps(step("mem", "", "B=Y")), "no inputs"),
    ensemble("ens_no_outputs", X + Y + steps(step("mem", "A=X", "")), "no outputs"),
    ensemble(
        "ens_written_twice",
        X + Y + steps(step("mem", "A=X", "B=Y"), step("mem", "A=X", "B=Y")),
        "by two steps",
    ),
    ensemble("ens_input_unused", X + tensor("input", "Z") + Y + _ONE, "an input"),
    ensemble("ens_output_unknown", X + Y + tensor("output", "Z") + _ONE, "an output"),
    ensemble(
        "ens_not_written",
        X + Y + steps(step("mem", "A=X", "B=n"), step("mem_two", "A=n C=gone", "B=Y")),
        "depends on nothing",
    ),
    ensemble(
        "ens_unused",
        X + Y + steps(step("mem", "A=X", "B=Y"), step("mem", "A=X", "B=waste")),
        "a tensor that nobody reads",
    ),
    ensemble(
        "ens_circle",
        X + Y + steps(step("mem_two", "A=X C=Y", "B=Y")),
        "a step that waits for itself",
    ),
    ensemble("ens_group", X + Y + _ONE + "instance_group [ { } ]\n", "has no instances"),
    ensemble("ens_optimized", X + Y + _ONE + "optimization { }\n", "has no memory"),
    ensemble("ens_warm", X + Y + _ONE + 'model_warmup [ { name: "x" } ]\n', "has no warm-up"),
    (
        Written("ens_no_platform", X + Y + _ONE, {"1/README": ""}),
        "E50",
        "another platform",
    ),
    ensemble("ens_nobody", X + Y + steps(step("nobody", "A=X", "B=Y")), "no such model", "E52"),
    ensemble("ens_of_broken", X + Y + steps(step("cfg_input_no_dims", "A=X", "B=Y")), "", "E52"),
    ensemble("ens_type", X + Y + steps(step("mem_int", "A=X", "B=Y")), "another type", "E51"),
    ensemble("ens_shape", X + Y + steps(step("mem_wide", "A=X", "B=Y")), "another shape", "E51"),
    ensemble(
        "ens_type_between",
        X + Y + steps(step("mem", "A=X", "B=m"), step("mem_int", "A=m", "B=Y")),
        "another type between two",
        "E51",
    ),
    ensemble("ens_batches", X + Y + _ONE + "max_batch_size: 4\n", "mem has none", "E51"),
    ensemble(
        "ens_more_batches",
        X + Y + steps(step("mem_batching", "A=X", "B=Y")) + "max_batch_size: 8\n",
        "more than a member",
        "E51",
    ),
    ensemble(
        "ens_batching",
        X + Y + steps(step("mem_batching", "A=X", "B=Y")) + "max_batch_size: 4\n",
        "as many as its member",
        "E51",
    ),
    ensemble("ens_unmapped", X + Y + steps(step("mem_two", "A=X", "B=Y")), "C", "E51"),
    ensemble("ens_optional", X + Y + steps(step("mem_optional", "A=X", "B=Y")), "O", "E59"),
    ensemble("ens_no_such_in", X + Y + steps(step("mem", "Q=X", "B=Y")), "Q", "E51"),
    ensemble("ens_no_such_out", X + Y + steps(step("mem", "A=X", "Q=Y")), "Q", "E51"),
    ensemble(
        "ens_decoupled", X + Y + steps(step("mem_decoupled", "A=X", "B=Y")), "it is too", "E43"
    ),
    ensemble(
        "ens_two_decoupled",
        X
        + Y
        + steps(
            step("mem_decoupled", "A=X", "B=m"),
            step("mem_decoupled", "A=X", "B=n"),
            step("mem_two", "A=m C=n", "B=Y"),
        ),
        "of two streams",
        "E51",
    ),
)
