"""Models that do not load, with the reason, and what auto-complete makes of those that do.

Each case writes its own model: nothing is in it but what it is about.
"""

from __future__ import annotations

from tests.conformance.cases import Case, get, post
from tests.conformance.repositories import Written

REPOSITORY = "loading"

IO = """
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
PYTHON = 'backend: "python"\n'
GOOD = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


def initializing(text: str) -> str:
    return f"class TritonPythonModel:\n    def initialize(self, args):\n        {text}\n" + (
        "    def execute(self, requests):\n        return []\n"
    )


def completing(text: str) -> str:
    """A model whose auto_complete_config has this body; `config` is what it is given."""
    return (
        "import triton_python_backend_utils as pb_utils\n\n\n"
        "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n"
        + "".join(f"        {line}\n" for line in text.splitlines())
        + "    def execute(self, requests):\n        return []\n"
    )


A = "config.add_input({'name': 'A', 'data_type': 'TYPE_FP32', 'dims': [1]})\n"
B = "config.add_output({'name': 'B', 'data_type': 'TYPE_FP32', 'dims': [-1]})\n"


def model(name: str, model_py: str | None, config: str = PYTHON + IO) -> Written:
    files = {"1/README": ""} if model_py is None else {"1/model.py": model_py}
    return Written(name, config, files)


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


_ROWS = (
    # ------------------------------------------------------------------ of the model
    (model("syntax_error", "class TritonPythonModel(:\n    pass\n"), "F02", "no Python"),
    (model("import_error", "import not_there\n"), "F02", "a module that is missing"),
    (model("raises_at_import", "raise ValueError('on purpose')\n"), "F02", "an exception amid"),
    (model("no_class", "class Other:\n    pass\n"), "A20", "the class has another name"),
    (model("class_is_a_function", "def TritonPythonModel():\n    return 1\n"), "A20", "no class"),
    (
        model(
            "constructor_raises",
            "class TritonPythonModel:\n    def __init__(self):\n        raise ValueError('no')\n",
        ),
        "A20",
        "made without arguments",
    ),
    (
        model("initialize_raises", initializing("raise ValueError('on purpose')")),
        "A22",
        "what the model said",
    ),
    (
        model(
            "initialize_raises_model_exception",
            "import triton_python_backend_utils as pb_utils\n"
            + initializing("raise pb_utils.TritonModelException('on purpose')"),
        ),
        "A22",
        "what the model said, with the exception of pb_utils",
    ),
    (model("initialize_exits", initializing("raise SystemExit(3)")), "A22", "an exit is one too"),
    (model("no_execute", "class TritonPythonModel:\n    pass\n"), "A23", "found out later"),
    (model("no_initialize", GOOD), "A22", "initialize is optional"),
    (
        Written(
            "file_of_another_name",
            PYTHON + IO + 'default_model_filename: "other.py"\n',
            {"1/other.py": GOOD},
        ),
        "B20",
        "as the configuration says",
    ),
    (
        Written(
            "file_that_is_no_python",
            PYTHON + IO + 'default_model_filename: "model.txt"\n',
            {"1/model.txt": GOOD},
        ),
        "B20",
        "must end in .py",
    ),
    (
        Written(
            "relative_import", PYTHON + IO, {"1/model.py": "from . import b\n" + GOOD, "1/b.py": ""}
        ),
        "A20",
        "a file beside it",
    ),
    (
        Written(
            "absolute_import",
            PYTHON + IO,
            {"1/model.py": "import beside\n" + GOOD, "1/beside.py": ""},
        ),
        "A20",
        "a file beside it, without saying so",
    ),
    # ------------------------------------------------------------------- completing
    (model("completed", completing(A + B + "return config"), PYTHON), "A83", "inputs and outputs"),
    (model("completed_without_config", completing(A + B + "return config"), ""), "E03", "no file"),
    (
        model(
            "completed_with_batches",
            completing(A + B + "config.set_max_batch_size(4)\nreturn config"),
            PYTHON,
        ),
        "A81",
        "max_batch_size",
    ),
    (
        model(
            "completed_with_dynamic_batching",
            completing(
                A + B + "config.set_max_batch_size(4)\nconfig.set_dynamic_batching()\nreturn config"
            ),
            PYTHON,
        ),
        "A82",
        "a scheduler",
    ),
    (
        model(
            "completed_as_decoupled",
            completing(
                A + B + "config.set_model_transaction_policy({'decoupled': True})\nreturn config"
            ),
            PYTHON,
        ),
        "A85",
        "a transaction policy",
    ),
    (
        model("completed_what_was_there", completing(A + "return config")),
        "A83",
        "the same input again",
    ),
    (
        model(
            "completed_an_optional_input",
            completing(
                "config.add_input({'name': 'A', 'data_type': 'TYPE_FP32', 'dims': [1], "
                "'optional': True})\n" + B + "return config"
            ),
            PYTHON,
        ),
        "A83",
        "optional",
    ),
    (
        model("completed_nothing", completing("return config"), PYTHON),
        "E22",
        "no input and no output",
    ),
    (model("completed_and_returned_nothing", completing(A + B), PYTHON), "A21", "None"),
    (
        model("completed_and_returned_a_text", completing("return 'x'"), PYTHON),
        "A21",
        "a text",
    ),
    (
        model("completing_raises", completing("raise ValueError('on purpose')"), PYTHON),
        "A21",
        "an exception",
    ),
    (
        model(
            "completed_smaller_batches",
            completing("config.set_max_batch_size(2)\nreturn config"),
            PYTHON + IO + "max_batch_size: 4\n",
        ),
        "A81",
        "less than the configuration has",
    ),
    (
        model(
            "completed_an_input_of_another_type",
            completing(A.replace("FP32", "INT8") + "return config"),
        ),
        "A83",
        "the configuration says otherwise",
    ),
    (
        model(
            "completed_an_input_of_other_dims",
            completing(A.replace("[1]", "[2]") + "return config"),
        ),
        "A83",
        "the configuration says otherwise",
    ),
    (
        model(
            "completed_an_output_of_another_type",
            completing(B.replace("FP32", "INT8") + "return config"),
        ),
        "A84",
        "the configuration says otherwise",
    ),
    (
        model(
            "completed_an_input_without_a_name",
            completing("config.add_input({'dims': [1]})\nreturn config"),
            PYTHON,
        ),
        "A83",
        "a name is needed",
    ),
    (
        model(
            "completed_an_input_without_a_type",
            completing("config.add_input({'name': 'A', 'dims': [1]})\nreturn config"),
            PYTHON,
        ),
        "A83",
        "a type is needed",
    ),
    (
        model(
            "completed_an_output_without_dims",
            completing("config.add_output({'name': 'B', 'data_type': 'TYPE_FP32'})\nreturn config"),
            PYTHON,
        ),
        "A84",
        "dims are needed",
    ),
    (
        model(
            "completed_an_input_with_more",
            completing(A.replace("[1]", "[1], 'is': 1") + "return config"),
            PYTHON,
        ),
        "A83",
        "a key that is not known",
    ),
    (
        model(
            "completed_an_unknown_policy",
            completing("config.set_model_transaction_policy({'x': 1})\nreturn config"),
        ),
        "A85",
        "a key that is not known",
    ),
    (
        model(
            "completed_another_policy",
            completing("config.set_model_transaction_policy({'decoupled': False})\nreturn config"),
            PYTHON + IO + "model_transaction_policy { decoupled: true }\n",
        ),
        "A85",
        "the configuration says otherwise",
    ),
    (
        model(
            "completed_a_second_scheduler",
            completing("config.set_dynamic_batching()\nreturn config"),
            PYTHON + IO + "max_batch_size: 4\nsequence_batching { }\n",
        ),
        "A82",
        "the configuration has another one",
    ),
    (
        model(
            "completed_an_unknown_type",
            completing(A.replace("TYPE_FP32", "FLOAT") + B + "return config"),
            PYTHON,
        ),
        "A86",
        "the result must be a configuration",
    ),
    # ---------------------------------------------------------------- configuration
    (model("unknown_field", GOOD, PYTHON + IO + "nonsense: 1\n"), "E20", "a field of no name"),
    (model("not_closed", GOOD, PYTHON + "input [ {"), "E20", "text that ends too early"),
    (model("another_name", GOOD, PYTHON + IO + 'name: "other"\n'), "E02", "not the directory's"),
    (model("unknown_backend", GOOD, 'backend: "nonsense"\n' + IO), "E20", "no such backend"),
    (model("negative_batches", GOOD, PYTHON + IO + "max_batch_size: -1\n"), "E21", "below 0"),
    (
        model(
            "preferred_beyond",
            GOOD,
            PYTHON + IO + "max_batch_size: 2\ndynamic_batching { preferred_batch_size: [ 4 ] }\n",
        ),
        "E21",
        "more than max_batch_size",
    ),
    (
        model(
            "input_without_a_name", GOOD, PYTHON + "input [ { data_type: TYPE_FP32 dims: [ 1 ] } ]"
        ),
        "E22",
        "a name is needed",
    ),
    (
        model("input_without_a_type", GOOD, PYTHON + 'input [ { name: "A" dims: [ 1 ] } ]'),
        "E22",
        "a type is needed",
    ),
    (
        model("input_without_dims", GOOD, PYTHON + 'input [ { name: "A" data_type: TYPE_FP32 } ]'),
        "E22",
        "dims are needed",
    ),
    (
        model(
            "dimension_of_zero",
            GOOD,
            PYTHON + 'input [ { name: "A" data_type: TYPE_FP32 dims: [ 0 ] } ]',
        ),
        "E22",
        "a dimension is at least 1",
    ),
    (
        model(
            "force_cpu_perhaps",
            GOOD,
            PYTHON + IO + parameter("FORCE_CPU_ONLY_INPUT_TENSORS", "perhaps"),
        ),
        "B15",
        "yes or no",
    ),
    (
        model(
            "environment_that_is_missing",
            GOOD,
            PYTHON + IO + parameter("EXECUTION_ENV_PATH", "/not/there.tar.gz"),
        ),
        "B10",
        "a path that does not exist",
    ),
    (
        model(
            "parameters_of_a_model",
            GOOD,
            PYTHON + IO + parameter("k", "v"),
        ),
        "C06",
        "as the configuration shows them",
    ),
    (
        Written("no_versions", PYTHON + IO, {"README": ""}),
        "F02",
        "a directory without a version",
    ),
)

#: Triton hangs where there is no file, so this comes last.
NO_FILE = model("no_file", None)
MODELS = (*(written for written, _, _ in _ROWS), NO_FILE)
CASES = (
    *(
        Case(
            f"load_{written.name}",
            (
                post(f"/v2/repository/models/{written.name}/load"),
                get(f"/v2/models/{written.name}/config"),
            ),
            row,
            why,
        )
        for written, row, why in _ROWS
    ),
    Case(
        "index_after_loading",
        post("/v2/repository/index"),
        "C70",
        "every model, with the reason why it is not there",
    ),
    Case(
        "execute_of_a_model_without_one",
        post(
            "/v2/models/no_execute/infer",
            {"inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}]},
        ),
        "A23",
        "found out when it is asked",
    ),
    Case(
        "metadata_of_a_completed_model",
        get("/v2/models/completed_with_batches"),
        "C05",
        "shapes with the dimension of the batch",
    ),
    Case(
        "ready_of_a_model_that_failed",
        get("/v2/models/syntax_error/ready"),
        "C03",
        "it is known, and not ready",
    ),
    Case(
        "infer_of_a_model_that_failed",
        post("/v2/models/syntax_error/infer", {"inputs": []}),
        "C41",
        "it has no version that can answer",
    ),
    Case(
        "load_no_file",
        post("/v2/repository/models/no_file/load", timeout_s=4.0),
        "B20",
        "there is no model.py",
    ),
)
