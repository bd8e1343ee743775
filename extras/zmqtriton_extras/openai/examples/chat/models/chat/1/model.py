import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from language import LanguageModel, spell

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
#: An answer ends with the sentence in which it has so many words.
ENOUGH = 24
MOST = 60


class TritonPythonModel:
    """Continues a text, or answers the last question of a chat: word by word if it is to stream."""

    def initialize(self, args):
        self.model = LanguageModel.load(Path(args["model_repository"]) / args["model_version"])

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                self.answer(request, sender)
            except (ValueError, TypeError) as error:
                failure = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
                sender.send(pb_utils.InferenceResponse(error=failure), FINAL)

    def answer(self, request, sender):
        prompt = value(request, "text_input", b"").decode()
        sampling = json.loads(value(request, "sampling_parameters", b"{}"))
        choices = [Choice(self.model, prompt, sampling, n) for n in range(sampling.get("n", 1))]
        read = len(self.model.encode(prompt))
        streams = bool(value(request, "stream", False))
        while any(choice.reason == "None" for choice in choices):
            if sender.is_cancelled():
                sender.send(flags=FINAL)
                return
            for choice in choices:
                choice.proceed()
            if streams and any(choice.reason == "None" for choice in choices):
                sender.send(response(choices, read))
        sender.send(response(choices, read), FINAL)


class Choice:
    """One answer, from its first word to the last."""

    def __init__(self, model, prompt, sampling, number):
        self.model = model
        seed = sampling.get("seed")
        self.random = np.random.default_rng(None if seed is None else abs(seed) + number)
        self.temperature = float(sampling.get("temperature", 0.7))
        self.top_p = float(sampling.get("top_p", 0.95))
        self.limit = int(sampling.get("max_tokens", MOST))
        self.stops = sampling.get("stop", [])
        #: Words that are chosen already, and all that the next one depends on.
        self.chosen, self.before = [], model.encode(prompt)
        if prompt.endswith("assistant:"):
            question = prompt[: -len("assistant:")].rpartition("user:")[2]
            self.chosen = model.opening(model.encode(question), self.random)
            self.before = []
        self.text, self.sent, self.words, self.reason = "", 0, 0, "None"
        self.counted = 0

    def proceed(self):
        """Add a word, unless it has ended."""
        if self.reason != "None":
            return
        if self.chosen:
            number = self.chosen.pop(0)
        else:
            number = self.model.choose(self.before, self.random, self.temperature, self.top_p)
        last = self.model.words[self.before[-1]] if self.before else ""
        word = self.model.words[number]
        self.before.append(number)
        self.text += spell(word, last)
        self.words += 1
        ends = [self.text.index(stop) for stop in self.stops if stop in self.text]
        if ends:
            self.text, self.reason = self.text[: max(self.sent, min(ends))], "stop"
        elif word in ".!?" and self.words >= ENOUGH:
            self.reason = "stop"
        elif self.words >= self.limit:
            self.reason = "length"

    def take(self):
        """Return the text and the number of words since the last time."""
        text, words = self.text[self.sent :], self.words - self.counted
        self.sent, self.counted = len(self.text), self.words
        return text, words


def response(choices, read):
    taken = [choice.take() for choice in choices]
    texts = np.array([text.encode() for text, _ in taken], dtype=np.object_)
    reasons = np.array([choice.reason.encode() for choice in choices], dtype=np.object_)
    words = np.array([words for _, words in taken], dtype=np.uint32)
    return pb_utils.InferenceResponse(
        [
            pb_utils.Tensor("text_output", texts),
            pb_utils.Tensor("finish_reason", reasons),
            pb_utils.Tensor("num_input_tokens", np.array([read], dtype=np.uint32)),
            pb_utils.Tensor("num_output_tokens", words),
        ]
    )


def value(request, name, default):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return default if tensor is None else tensor.as_numpy()[0]
