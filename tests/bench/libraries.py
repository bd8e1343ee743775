"""The memory of models of several libraries, as processes, forks and threads.

    python -m tests.bench.libraries --python ENVIRONMENT/bin/python [--only onnxruntime]

The environment has the libraries, and pyzmq and msgpack. Each model is made and saved first; then
it is loaded by `preload`, by `pb_utils.shared` or by each instance. All instances are asked several
times before the memory of their processes (PSS) is read. Measures and prints; asserts nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import textwrap
from typing import NamedTuple

from tests.bench.instances import KINDS, model_mib, scale, serving
from tests.support import leaks
from tests.support.scripted import string_parameter

_INSTANCES = 4
_ASKED = 40


class Library(NamedTuple):
    """Python code by which a library makes a model, loads it and asks it; `path` is a file."""

    make: str
    load: str
    ask: str


LIBRARIES = {
    "numpy": Library(
        "import numpy as np; np.save(path + '.npy', np.ones((6000, 4000), np.float32))",
        "import numpy as np; return np.load(path + '.npy')",
        "import numpy as np; model @ np.ones(4000, np.float32)",
    ),
    "scikit-learn": Library(
        "import numpy as np, pickle; from sklearn.ensemble import RandomForestRegressor\n"
        "x = np.random.rand(20000, 20); y = np.random.rand(20000)\n"
        "forest = RandomForestRegressor(20, n_jobs=1).fit(x, y)\n"
        "pickle.dump(forest, open(path, 'wb'))",
        "import pickle; return pickle.load(open(path, 'rb'))",
        "import numpy as np; model.predict(np.ones((8, 20)))",
    ),
    "lightgbm": Library(
        "import numpy as np, lightgbm\n"
        "x = np.random.rand(20000, 20); y = np.random.rand(20000)\n"
        "data = lightgbm.Dataset(x, y)\n"
        "how = {'num_leaves': 4000, 'min_data_in_leaf': 1, 'verbose': -1, 'num_threads': 1}\n"
        "lightgbm.train(how, data, 60).save_model(path)",
        "import lightgbm; return lightgbm.Booster(model_file=path)",
        "import numpy as np; model.predict(np.ones((8, 20)), num_threads=1)",
    ),
    "xgboost": Library(
        "import numpy as np, xgboost\n"
        "x = np.random.rand(20000, 20); y = np.random.rand(20000)\n"
        "how = {'max_depth': 0, 'max_leaves': 4000, 'grow_policy': 'lossguide', 'nthread': 2}\n"
        "xgboost.train(how, xgboost.DMatrix(x, y), 60).save_model(path + '.ubj')",
        "import xgboost; model = xgboost.Booster({'nthread': 1}); "
        "model.load_model(path + '.ubj'); return model",
        "import numpy as np; model.inplace_predict(np.ones((8, 20), np.float32))",
    ),
    "onnxruntime": Library(
        "import numpy as np\n"
        "from onnx import TensorProto as T, helper as h, numpy_helper as n, save\n"
        "io = [h.make_tensor_value_info(x, T.FLOAT, [1, 5000]) for x in 'xy']\n"
        "w = n.from_array(np.ones((5000, 5000), np.float32), 'w')\n"
        "node = h.make_node('MatMul', ['x', 'w'], ['y'])\n"
        "graph = h.make_graph([node], 'g', io[:1], io[1:], [w])\n"
        "save(h.make_model(graph, ir_version=9, opset_imports=[h.make_opsetid('', 17)]), path)",
        "import onnxruntime; options = onnxruntime.SessionOptions()\n"
        "options.intra_op_num_threads = 1\n"
        "return onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])",
        "import numpy as np; model.run(None, {'x': np.ones((1, 5000), np.float32)})",
    ),
    "tokenizers": Library(
        "from tokenizers import Tokenizer, models, pre_tokenizers\n"
        "words = {f'word{i}': i for i in range(400_000)}\n"
        "tokenizer = Tokenizer(models.WordLevel(words, unk_token='word0'))\n"
        "tokenizer.pre_tokenizer = pre_tokenizers.Whitespace(); tokenizer.save(path)",
        "from tokenizers import Tokenizer; return Tokenizer.from_file(path)",
        "model.encode('word1 word2 word399999')",
    ),
    "torch": Library(
        "import torch; torch.save(torch.nn.Linear(5000, 5000).state_dict(), path)",
        "import torch; torch.set_num_threads(1); model = torch.nn.Linear(5000, 5000)\n"
        "model.load_state_dict(torch.load(path)); return model.eval()",
        "import torch\nwith torch.inference_mode(): model(torch.ones(1, 5000))",
    ),
}
_CODE = """
import triton_python_backend_utils as pb_utils

path = {path!r}

def load():
{load}

def ask(model):
{ask}

class TritonPythonModel:
    model = None

    @staticmethod
    def preload(args):
        {preload}

    def initialize(self, args):
        if self.model is None:
            self.model = pb_utils.shared("model", load)
        ask(self.model)

    def execute(self, requests):
        for _ in requests:
            ask(self.model)
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""


def _measure(library: Library, kind: str, path: str, python: str) -> str:
    """Return the memory of one instance and of several, or why there is none."""
    preload = "TritonPythonModel.model = load()" if kind == "forks" else "pass"
    lines = {name: textwrap.indent(text, "    ") for name, text in library._asdict().items()}
    code = _CODE.format(path=path, preload=preload, **lines)
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [16], "data": [1] * 16}
    figures = []
    try:
        with serving(code, kind, config=string_parameter("PYTHON_EXECUTABLE", python)) as server:
            for count in (1, _INSTANCES):
                scale(server, count)
                for _ in range(_ASKED):
                    status, answer = server.request_json("/v2/models/m/infer", {"inputs": [tensor]})
                    assert status == 200, answer
                figures.append(model_mib(server))
    except AssertionError as error:
        return str(error)
    one, several = figures
    each = (several - one) / (_INSTANCES - 1)
    return f"{one:8.0f} MiB, {each:6.1f} MiB for each further instance"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True, help="an interpreter that has the libraries")
    parser.add_argument("--only", default="", help="one of the libraries")
    options = parser.parse_args()
    leaks.mark_session()
    with tempfile.TemporaryDirectory() as folder:
        for name, library in LIBRARIES.items():
            if options.only not in ("", name):
                continue
            path = f"{folder}/{name}"
            subprocess.run(
                [options.python, "-c", f"path = {path!r}\n{library.make}"], check=True, timeout=600
            )
            for kind in KINDS:
                figures = _measure(library, kind, path, options.python)
                print(f"{name:14} {kind:10} {figures}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
