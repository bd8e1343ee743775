import json
import os
import re
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
#: A word that fails the request where it stands, and one that is repeated until nobody listens.
#: After INPUT comes the name of an input that is the answer.
FAILURE, ENDLESS = "FAIL", "FOREVER"


class Question:
    """One request: the words of the answer, and how it is to be given."""

    def __init__(self, request):
        self.id = request.request_id()
        self.sender = request.get_response_sender()
        prompt = value(request, "text_input").decode()
        sampling = json.loads(value(request, "sampling_parameters"))
        self.prompt_tokens = len(prompt.split())
        self.choices = sampling.get("n", 1)
        self.is_streamed = bool(value(request, "stream"))
        last_line = prompt.removesuffix("\nassistant:").splitlines()[-1]
        self.words = last_line.removeprefix("user: ").split()
        self.reason = "stop"
        self.has_logprobs = "logprobs" in sampling
        if self.words[:1] == ["INPUT"]:
            self.words = [value(request, self.words[1]).decode()]
        elif prompt.startswith("SAMPLING"):
            self.words = [json.dumps(sampling, sort_keys=True)]
        elif len(self.words) > sampling.get("max_tokens", 10**6):
            self.words = self.words[: sampling["max_tokens"]]
            self.reason = "length"


def value(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0]


def strings(name, text, count):
    return pb_utils.Tensor(name, np.array([text.encode()] * count, dtype=object))


def numbers(name, *values):
    return pb_utils.Tensor(name, np.array(values, dtype=np.uint32))


def probabilities(text):
    """Tell a word and its capitals, which are less probable, for each word."""
    return json.dumps(
        [
            {
                "1": {"decoded_token": word, "logprob": -0.25, "rank": 1},
                "2": {"decoded_token": word.upper(), "logprob": -2.0, "rank": 2},
            }
            for word in re.findall(r"\s*\S+", text)
        ]
    )


class TritonPythonModel:
    def initialize(self, args):
        path = json.loads(args["model_config"])["parameters"]["JOURNAL"]["string_value"]
        self._journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._threads = []

    def execute(self, requests):
        for request in requests:
            thread = threading.Thread(target=self._answer, args=(Question(request),))
            self._threads.append(thread)
            thread.start()

    def _answer(self, question):
        if ENDLESS in question.words and not question.is_streamed:
            self._write("endless", question.id)
        if not question.is_streamed and ENDLESS not in question.words:
            if FAILURE in question.words:
                self._fail(question)
            else:
                text = " ".join(question.words)
                self._send(question, text, question.reason, len(question.words), FINAL)
            return
        for i, word in enumerate(question.words):
            if word == FAILURE:
                self._fail(question)
                return
            while word == ENDLESS:
                if question.sender.is_cancelled():
                    self._write("cancelled", question.id)
                    question.sender.send(flags=FINAL)
                    return
                time.sleep(0.002)
                if question.is_streamed:
                    self._send(question, word, "None", 1)
            self._send(question, (" " if i else "") + word, "None", 1)
        self._send(question, "", question.reason, 0, FINAL)

    def _send(self, question, text, reason, tokens, flags=0):
        outputs = [
            strings("text_output", text, question.choices),
            strings("finish_reason", reason, question.choices),
            numbers("num_input_tokens", question.prompt_tokens),
            numbers("num_output_tokens", *[tokens] * question.choices),
        ]
        if question.has_logprobs:
            outputs.append(strings("logprobs", probabilities(text), question.choices))
        question.sender.send(pb_utils.InferenceResponse(outputs), flags)

    def _fail(self, question):
        error = pb_utils.TritonError("the word is FAIL", pb_utils.TritonError.INVALID_ARG)
        question.sender.send(pb_utils.InferenceResponse(error=error), FINAL)

    def _write(self, event, name):
        record = {"event": event, "id": name, "pid": os.getpid(), "ns": time.monotonic_ns()}
        os.write(self._journal, json.dumps(record).encode("utf-8") + b"\n")

    def finalize(self):
        for thread in self._threads:
            thread.join()
        os.close(self._journal)
