import json
import os

import triton_python_backend_utils as pb_utils
from words import Vocabulary


class TritonPythonModel:
    """`INPUT_IDS` and `ATTENTION_MASK` of the texts in `QUERY`, all as long as the recipe says."""

    def initialize(self, args):
        named = json.loads(args["model_config"])["parameters"]["recipe_file"]["string_value"]
        path = os.path.join(args["model_repository"], args["model_version"], named)
        try:
            self.vocabulary = Vocabulary.read(path)
        except FileNotFoundError as error:
            raise pb_utils.TritonModelException(f"{error.filename} is made by make.py") from None
        pb_utils.Logger.log_info(f"the vocabulary has {len(self.vocabulary.numbers)} words")

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        query = pb_utils.get_input_tensor_by_name(request, "QUERY").as_numpy()
        texts = [text.decode("utf-8", "replace") for text in query[:, 0]]
        ids, mask = self.vocabulary.encode(texts)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("INPUT_IDS", ids), pb_utils.Tensor("ATTENTION_MASK", mask)]
        )
