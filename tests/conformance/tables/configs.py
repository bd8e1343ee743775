"""Configurations, good and bad: does the model load, why not, and what is made of its text.

Each case loads a model of its own; what is compared is the reason, the place in the index, and the
whole text of the configuration as clients read it. `configs_ensembles` has those of ensembles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.conformance.cases import Case, Loaded
from tests.conformance.repositories import Written
from tests.conformance.tables.configs_ensembles import ENSEMBLES
from tests.conformance.tables.loading import GOOD, IO, PYTHON, parameter

REPOSITORY = "configs"
OPTIONS = ("--model-control-mode=explicit",)

_A = 'name: "A" data_type: TYPE_FP32'
_OUT = 'output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
_BATCHING = PYTHON + IO + "max_batch_size: 8\n"

Row = tuple[Written, str, str]


def row(name: str, config: str, id: str, why: str, files: Mapping[str, str] | None = None) -> Row:
    """A model with a model.py that answers nothing, unless it has other files."""
    return Written(name, config, {"1/model.py": GOOD} if files is None else files), id, why


def given_input(name: str, fields: str, why: str, *, more: str = "", id: str = "E22") -> Row:
    return row(name, PYTHON + more + f"input [ {{ {fields} }} ]\n" + _OUT, id, why)


def given_output(name: str, fields: str, why: str, *, id: str = "E22") -> Row:
    text = f'{PYTHON}input [ {{ {_A} dims: [ 1 ] }} ]\noutput [ {{ name: "B" {fields} }} ]\n'
    return row(name, text, id, why)


def dynamic(name: str, fields: str, why: str, id: str = "E23") -> Row:
    return row(name, _BATCHING + f"dynamic_batching {{ {fields} }}\n", id, why)


def sequence(name: str, fields: str, why: str, id: str = "E41") -> Row:
    return row(name, _BATCHING + f"sequence_batching {{ {fields} }}\n", id, why)


def control(kind: str, rest: str, name: str = "START") -> str:
    return f'control_input [ {{ name: "{name}" control [ {{ kind: {kind} {rest} }} ] }} ]'


def groups(name: str, fields: str, why: str, id: str = "E37") -> Row:
    return row(name, PYTHON + IO + f"instance_group [ {fields} ]\n", id, why)


def backend_row(name: str, config: str, why: str, *files: str) -> Row:
    """A model whose backend must be found; the files have something in them, be it nothing.

    Not of backends that zmqtriton has and the recorded Triton had not.
    """
    contents = {file: GOOD if file.endswith(".py") else "x" for file in files}
    return row(name, config, "E03", why, contents)


_DETECTED = (
    row("cfg_plain", PYTHON + IO, "E90", "nothing but what is needed"),
    row("cfg_named", PYTHON + IO + 'name: "cfg_named"\n', "E02", "as the directory"),
    row("cfg_misnamed", PYTHON + IO + 'name: "another"\n', "E02", "not as the directory"),
    backend_row("cfg_no_backend", IO, "by model.py", "1/model.py"),
    backend_row(
        "cfg_filename_only", IO + 'default_model_filename: "model.py"\n', "by name", "1/model.py"
    ),
    backend_row("cfg_filename_other", IO + 'default_model_filename: "m.py"\n', "no such", "1/m.py"),
    backend_row("cfg_nothing", "", "no file at all", "1/README"),
    backend_row("cfg_nothing.python", IO, "by its own name", "1/model.python"),
    backend_row("cfg_named.nonsense", IO, "by its own name, and it is none", "1/README"),
    backend_row(
        "cfg_savedmodel_file", IO, "must be a directory", "1/model.py", "1/model.savedmodel"
    ),
    backend_row("cfg_platform_x", IO + 'platform: "nonsense"\n', "no such platform", "1/model.py"),
    backend_row("cfg_other_first", IO, "no version comes first", "0env/x", "1/model.py"),
    backend_row("cfg_other_last", IO, "a version comes first", "env/x", "1/model.py"),
    row("cfg_pair", 'backend: "onnxruntime"\nplatform: "x"\n' + IO, "E20", "do not fit"),
    row("cfg_pair_free", PYTHON + 'platform: "x"\n' + IO, "E20", "Python has no platform"),
    row("cfg_ensemble_backend", PYTHON + 'platform: "ensemble"\n' + IO, "E20", "both"),
    row("cfg_runtime", PYTHON + 'runtime: "x.so"\n' + IO, "E20", "of a backend that has its own"),
    row("cfg_empty_text", "# nothing\n", "E03", "a text that says nothing"),
)

_READ = (
    row("cfg_unknown_field", PYTHON + IO + "max_batch_sizes: 1\n", "E20", "a slip of the pen"),
    row("cfg_unknown_type", PYTHON + IO.replace("TYPE_FP32", "TYPE_F"), "E20", "no such type"),
    row("cfg_open_brace", PYTHON + "input [ {", "E20", "not closed"),
    row("cfg_text_as_number", PYTHON + IO + 'max_batch_size: "x"\n', "E20", "a text"),
    row("cfg_twice", PYTHON + PYTHON + IO, "E20", "a field twice"),
    row(
        "cfg_forms",
        'backend: "python"; # comment\ninput { name: "A", data_type: TYPE_FP32, dims: 1 dims: -1 }'
        "\noutput: [ { name: 'B' data_type: 11 dims: [ 1, 2 ] } ]\n"
        'parameters { key: "a" value: { string_value: "1" } }\n',
        "E90",
        "all forms of the text format",
    ),
    row("cfg_parameter", PYTHON + IO + parameter("k", 'a\\"\\\\/\\t\\303\\244<'), "E39", "signs"),
    row(
        "cfg_directory",
        PYTHON + IO + parameter("P", "$$TRITON_MODEL_DIRECTORY/x"),
        "E39",
        "as it stands",
    ),
)

_TENSORS = (
    given_input("cfg_input_no_name", "data_type: TYPE_FP32 dims: [ 1 ]", "a name is needed"),
    given_input("cfg_input_no_type", 'name: "A" dims: [ 1 ]', "a type is needed"),
    given_input("cfg_input_no_dims", _A, "dims are needed"),
    given_input("cfg_input_zero", _A + " dims: [ 0 ]", "1 is the least"),
    given_input("cfg_input_minus_two", _A + " dims: [ -2 ]", "only -1 is below"),
    given_output("cfg_output_no_type", "dims: [ 1 ]", "a type is needed"),
    given_output("cfg_output_no_dims", "data_type: TYPE_FP32", "dims are needed"),
    given_output("cfg_output_zero", "data_type: TYPE_FP32 dims: [ 2, 0 ]", "1 is the least"),
    given_input("cfg_reshape", _A + " dims: [ 2, 3 ] reshape { shape: [ 6 ] }", "fits"),
    given_input("cfg_reshape_size", _A + " dims: [ 2 ] reshape { shape: [ 3 ] }", "does not"),
    given_input("cfg_reshape_empty", _A + " dims: [ 1 ] reshape { }", "of what has no batches"),
    given_input(
        "cfg_reshape_scalar",
        _A + " dims: [ 1 ] reshape { }",
        "of batches",
        more="max_batch_size: 2\n",
    ),
    given_input("cfg_reshape_zero", _A + " dims: [ 2 ] reshape { shape: [ 0 ] }", "1 is the least"),
    given_input(
        "cfg_reshape_free", _A + " dims: [ 2, -1, 2 ] reshape { shape: [ -1, 4 ] }", "other parts"
    ),
    given_input("cfg_reshape_frees", _A + " dims: [ -1, -1 ] reshape { shape: [ -1 ] }", "fewer"),
    given_input("cfg_format", _A + " format: FORMAT_NHWC dims: [ 1 ]", "needs three", id="E26"),
    given_input("cfg_format_ok", _A + " format: FORMAT_NCHW dims: [ 3, 2, 2 ]", "has", id="E26"),
    given_input("cfg_shape_tensor", _A + " dims: [ 1 ] is_shape_tensor: true", "TRT", id="E26"),
    given_input("cfg_nonlinear", _A + " dims: [ 1 ] is_non_linear_format_io: true", "", id="E26"),
    given_output(
        "cfg_output_shape_tensor",
        "data_type: TYPE_FP32 dims: [ 1 ] is_shape_tensor: true",
        "TensorRT only",
        id="E26",
    ),
    given_input("cfg_optional", _A + " dims: [ 1 ] optional: true", "as it stands", id="E30"),
    given_input(
        "cfg_ragged", _A + " dims: [ -1 ] allow_ragged_batch: true", "as it stands", id="E33"
    ),
    row("cfg_no_input", PYTHON + _OUT, "E22", "only an output"),
    row(
        "cfg_same_names",
        PYTHON + f"input [ {{ {_A} dims: [ 1 ] }}, {{ {_A} dims: [ 2 ] }} ]\n" + _OUT,
        "E22",
        "two inputs of one name",
    ),
    row(
        "cfg_batch_input",
        _BATCHING + "batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: 'C' "
        "data_type: TYPE_FP32 source_input: 'A' } ]\n",
        "E34",
        "good",
    ),
    row(
        "cfg_batch_input_type",
        _BATCHING + "batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: 'C' "
        "data_type: TYPE_INT8 source_input: 'A' } ]\n",
        "E34",
        "of a type that is not allowed",
    ),
    row(
        "cfg_batch_input_source",
        _BATCHING + "batch_input [ { kind: BATCH_ITEM_SHAPE target_name: 'C' "
        "data_type: TYPE_FP32 source_input: 'X' } ]\n",
        "E34",
        "of an input that is none",
    ),
    row(
        "cfg_batch_output",
        _BATCHING + "batch_output [ { target_name: 'X' source_input: 'A' } ]\n",
        "E34",
        "of an output that is none",
    ),
)

_BATCHERS = (
    row("cfg_batch_negative", PYTHON + IO + "max_batch_size: -3\n", "E21", "below 0"),
    dynamic("cfg_dynamic", "", "defaults", "E05"),
    row("cfg_dynamic_alone", PYTHON + IO + "dynamic_batching { }\n", "E05", "without batches"),
    dynamic("cfg_preferred", "preferred_batch_size: [ 4, 2 ]", "as it stands", "E21"),
    dynamic("cfg_preferred_zero", "preferred_batch_size: [ 0 ]", "must be positive", "E21"),
    dynamic("cfg_preferred_beyond", "preferred_batch_size: [ 9 ]", "beyond", "E21"),
    dynamic(
        "cfg_dynamic_full",
        "max_queue_delay_microseconds: 100 priority_levels: 2 default_priority_level: 1 "
        "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 "
        "allow_timeout_override: true max_queue_size: 3 } "
        "priority_queue_policy { key: 2 value { max_queue_size: 1 } }",
        "everything",
        "E40",
    ),
    dynamic("cfg_priority_none", "priority_levels: 2", "no default"),
    dynamic("cfg_priority_beyond", "priority_levels: 2 default_priority_level: 3", "beyond"),
    dynamic(
        "cfg_priority_policy",
        "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { } }",
        "of a level that there is not",
    ),
    dynamic(
        "cfg_ordering",
        "preserve_ordering: true priority_levels: 2 default_priority_level: 1",
        "and priorities",
    ),
    dynamic(
        "cfg_ordering_delay",
        "preserve_ordering: true default_queue_policy "
        "{ timeout_action: DELAY default_timeout_microseconds: 1 }",
        "and delay",
    ),
    row(
        "cfg_two_schedulers",
        _BATCHING + "dynamic_batching { }\nsequence_batching { }\n",
        "E40",
        "one of them",
    ),
    sequence("cfg_sequence", "", "defaults"),
    sequence("cfg_sequence_direct", "direct { minimum_slot_utilization: 0.3 }", "of one kind"),
    sequence("cfg_sequence_slots", "direct { minimum_slot_utilization: 1.5 }", "beyond 1"),
    sequence("cfg_sequence_oldest", "oldest { max_candidate_sequences: 4 }", "of another kind"),
    sequence(
        "cfg_sequence_preferred",
        "oldest { max_candidate_sequences: 4 preferred_batch_size: [ 9 ] }",
        "beyond",
    ),
    sequence(
        "cfg_sequence_full",
        "max_sequence_idle_microseconds: 7 "
        + control("CONTROL_SEQUENCE_START", "fp32_false_true: [ 0, 1 ]")
        + control("CONTROL_SEQUENCE_CORRID", "data_type: TYPE_UINT64", "ID")
        + control("CONTROL_SEQUENCE_END", "bool_false_true: [ false, true ]", "END")
        + control("CONTROL_SEQUENCE_READY", "int32_false_true: [ 0, 1 ]", "READY"),
        "all controls",
    ),
    sequence("cfg_control_bare", control("CONTROL_SEQUENCE_START", ""), "needs values"),
    sequence(
        "cfg_control_three",
        control("CONTROL_SEQUENCE_START", "int32_false_true: [ 0, 1, 2 ]"),
        "two values",
    ),
    sequence(
        "cfg_control_two_types",
        control("CONTROL_SEQUENCE_END", "int32_false_true: [ 0, 1 ] fp32_false_true: [ 0, 1 ]"),
        "one type",
    ),
    sequence(
        "cfg_control_twice",
        control("CONTROL_SEQUENCE_START", "int32_false_true: [ 0, 1 ]")
        + control("CONTROL_SEQUENCE_START", "int32_false_true: [ 0, 1 ]", "X"),
        "one kind",
    ),
    sequence(
        "cfg_control_id",
        control("CONTROL_SEQUENCE_CORRID", "data_type: TYPE_FP32"),
        "a number or a text",
    ),
    sequence(
        "cfg_control_id_flags",
        control("CONTROL_SEQUENCE_CORRID", "data_type: TYPE_UINT64 int32_false_true: [ 0, 1 ]"),
        "not both",
    ),
    sequence(
        "cfg_state",
        'state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: [ 1 ] '
        'initial_state { name: "x" data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } }',
        "as it stands",
        "E75",
    ),
    sequence(
        "cfg_state_two",
        'state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: [ 1 ] '
        'initial_state [ { name: "x" zero_data: true }, { name: "y" zero_data: true } ] }',
        "one beginning",
        "E75",
    ),
    sequence(
        "cfg_state_unnamed",
        'state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: [ 1 ] '
        "initial_state { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } }",
        "a name is needed",
        "E75",
    ),
    sequence("cfg_iterative", "iterative_sequence: true", "as it stands"),
)

_GROUPS = (
    groups("cfg_group_bare", "{ }", "unnamed", "E05"),
    groups("cfg_group_two", '{ count: 2 }, { name: "x" kind: KIND_CPU }', "names", "E05"),
    groups("cfg_group_model", "{ kind: KIND_MODEL }", "of the model"),
    groups("cfg_group_model_gpu", "{ kind: KIND_MODEL gpus: [ 0 ] }", "with GPUs", "E24"),
    groups("cfg_group_cpu_gpu", "{ kind: KIND_CPU gpus: [ 0 ] }", "with GPUs", "E24"),
    groups("cfg_group_gpu", "{ kind: KIND_GPU }", "there is none", "E24"),
    groups("cfg_group_gpu_7", "{ kind: KIND_GPU gpus: [ 7 ] }", "there is none", "E24"),
    groups("cfg_group_auto_7", "{ kind: KIND_AUTO gpus: [ 7 ] }", "becomes the CPU", "E06"),
    groups("cfg_group_profile", '{ profile: "1" }', "of TensorRT", "E24"),
    groups("cfg_group_negative", "{ count: -1 }", "becomes one"),
    groups("cfg_group_passive", "{ count: 1 }, { count: 1 passive: true }", "as it stands"),
    groups("cfg_group_policy", '{ host_policy: "x" }', "as it stands"),
    groups(
        "cfg_group_devices",
        "{ secondary_devices [ { kind: KIND_NVDLA device_id: 1 } ] }",
        "as it stands",
    ),
    groups(
        "cfg_group_limits",
        '{ rate_limiter { resources [ { name: "R" global: true count: 2 } ] priority: 3 } }',
        "as it stands",
        "E38",
    ),
)

_FILES = {"1/model.py": GOOD}

_OTHERS = (
    row(
        "cfg_policy_latest",
        PYTHON + IO + "version_policy { latest { num_versions: 2 } }\n",
        "E36",
        "two",
        {"1/model.py": GOOD, "2/model.py": GOOD, "3/model.py": GOOD},
    ),
    row(
        "cfg_policy_latest_0",
        PYTHON + IO + "version_policy { latest { } }\n",
        "E36",
        "none",
        {"1/model.py": GOOD},
    ),
    row(
        "cfg_policy_all",
        PYTHON + IO + "version_policy { all { } }\n",
        "E36",
        "all",
        {"1/model.py": GOOD, "3/model.py": GOOD},
    ),
    row(
        "cfg_policy_some",
        PYTHON + IO + "version_policy { specific { versions: [ 1, 9 ] } }\n",
        "E36",
        "one is missing",
        {"1/model.py": GOOD, "3/model.py": GOOD},
    ),
    row(
        "cfg_policy_gone",
        PYTHON + IO + "version_policy { specific { versions: [ 9 ] } }\n",
        "E36",
        "all are missing",
        {"1/model.py": GOOD},
    ),
    row(
        "cfg_policy_empty",
        PYTHON + IO + "version_policy { }\n",
        "E36",
        "of no kind",
        {"1/model.py": GOOD, "2/model.py": GOOD},
    ),
    given_output(
        "cfg_labels", 'data_type: TYPE_FP32 dims: [ 1 ] label_filename: "l.txt"', "", id="E35"
    ),
    given_output(
        "cfg_labels_outside",
        'data_type: TYPE_FP32 dims: [ 1 ] label_filename: "../cfg_plain/config.pbtxt"',
        "of another model",
        id="E35",
    ),
    given_output(
        "cfg_labels_absolute",
        'data_type: TYPE_FP32 dims: [ 1 ] label_filename: "/etc/passwd"',
        "of the machine",
        id="E35",
    ),
    row(
        "cfg_decoupled",
        PYTHON + IO + "model_transaction_policy { decoupled: true }\n",
        "E43",
        "as it stands",
    ),
    row("cfg_cache", PYTHON + IO + "response_cache { enable: true }\n", "E25", "no cache here"),
    row("cfg_cache_off", PYTHON + IO + "response_cache { }\n", "E25", "as it stands"),
    row(
        "cfg_cache_decoupled",
        PYTHON + IO + "response_cache { enable: true }\n"
        "model_transaction_policy { decoupled: true }\n",
        "E25",
        "not both",
    ),
    row(
        "cfg_cache_sequence",
        _BATCHING + "response_cache { enable: true }\nsequence_batching { }\n",
        "E25",
        "not both",
    ),
    row(
        "cfg_optimization",
        PYTHON + IO + "optimization { priority: PRIORITY_MAX graph { level: 1 }"
        " gather_kernel_buffer_threshold: 3 eager_batching: true\n"
        " input_pinned_memory { enable: false } cuda { graphs: true graph_spec { batch_size: 1\n"
        ' input { key: "A" value { dim: [ 1 ] } } } }\n'
        ' execution_accelerators { cpu_execution_accelerator { name: "x" } } }\n',
        "E48",
        "as it stands",
    ),
    row(
        "cfg_operations",
        PYTHON + IO + 'model_operations { op_library_filename: "x.so" }\n'
        'cc_model_filenames { key: "7.5" value: "x" }\n',
        "E49",
        "as it stands",
    ),
    row(
        "cfg_agent",
        PYTHON + IO + 'model_repository_agents { agents [ { name: "nobody" } ] }\n',
        "E49",
        "there is none",
    ),
    row(
        "cfg_metrics",
        PYTHON + IO + 'metric_tags { key: "a" value: "b" }\nmodel_metrics { '
        'metric_control { metric_identifier { family: "f" } '
        "histogram_options { buckets: [ 1, 2.5 ] } } }\n",
        "E47",
        "as it stands",
    ),
    row("cfg_metrics_bare", PYTHON + IO + "model_metrics { metric_control { } }\n", "E47", "no"),
    row(
        "cfg_metrics_family",
        PYTHON + IO + "model_metrics { metric_control { metric_identifier { } } }\n",
        "E47",
        "without a name",
    ),
    row(
        "cfg_metrics_options",
        PYTHON + IO + 'model_metrics { metric_control { metric_identifier { family: "f" } } }\n',
        "E47",
        "without options",
    ),
    row(
        "cfg_metrics_buckets",
        PYTHON + IO + "model_metrics { metric_control { "
        'metric_identifier { family: "f" } histogram_options { } } }\n',
        "E47",
        "no buckets",
    ),
    row("cfg_no_version", PYTHON + IO, "E36", "nothing to load", {"README": ""}),
)

_TENSOR = {"name": "A", "data_type": "TYPE_FP32", "dims": [1]}


def override(name: str, config: Any, why: str, model: str = "cfg_plain") -> Case:
    """A load with a configuration in place of the file, as a document or a text."""
    text = config if isinstance(config, str) else json.dumps({"backend": "python", **config})
    return Case(f"override_{name}", Loaded(model, {"config": text}), "F05", why)


OVERRIDES = (
    override("of_batches", {"max_batch_size": 3, "input": [_TENSOR]}, "another size"),
    override("with_dims_as_texts", {"input": [{**_TENSOR, "dims": ["2"]}]}, "protobuf's way"),
    override("in_camel_case", {"maxBatchSize": 2}, "protobuf's other way"),
    override("with_enum_in_small_letters", {"input": [{**_TENSOR, "data_type": "type_fp32"}]}, ""),
    override("with_another_name", {"name": "x"}, "the request has the name"),
    override("with_an_unknown_field", {"max_batch_sizes": 2}, "a slip of the pen"),
    override("with_an_unknown_type", {"input": [{**_TENSOR, "data_type": "TYPE_F"}]}, "no type"),
    override("with_wrong_dims", {"input": [{**_TENSOR, "dims": [0]}]}, "1 is the least"),
    override("with_negative_batches", {"max_batch_size": -2}, "below 0"),
    override("that_is_no_json", "{", "half of it"),
    override("that_is_an_array", "[]", "of no kind"),
    override("that_is_empty", "{}", "the directory says which backend"),
    override("of_nobody", {}, "a directory is needed", "nobody"),
)

_ROWS = (*_DETECTED, *_READ, *_TENSORS, *_BATCHERS, *_GROUPS, *_OTHERS, *ENSEMBLES)

MODELS = tuple(written for written, _, _ in _ROWS)
CASES = (
    *(
        Case(written.name.replace(".", "_dot_"), Loaded(written.name), row, why)
        for written, row, why in _ROWS
    ),
    *OVERRIDES,
)
