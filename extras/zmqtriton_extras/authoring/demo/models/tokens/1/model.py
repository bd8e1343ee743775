import time

import numpy as np
import triton_python_backend_utils as pb_utils

#: Longest delay, in seconds.
MAX_DELAY_S = 10.0


class TritonPythonModel:
    """Sends the words of TEXT one by one, DELAY_MS apart, as a language model sends its tokens."""

    def execute(self, requests):
        for request in requests:
            self.stream(request)
        # A decoupled model answers through response senders and returns nothing.

    def stream(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0].decode()
        delay = pb_utils.get_input_tensor_by_name(request, "DELAY_MS")
        delay_s = 0.0 if delay is None else min(int(delay.as_numpy()[0]) / 1000, MAX_DELAY_S)
        sender = request.get_response_sender()
        for index, word in enumerate(text.split()):
            end = time.monotonic() + delay_s if index else 0.0
            while time.monotonic() < end and not request.is_cancelled():
                time.sleep(min(delay_s, 0.05))  # and look again whether the client is there
            if request.is_cancelled():
                break  # nobody reads any more
            sender.send(
                pb_utils.InferenceResponse(
                    output_tensors=[
                        pb_utils.Tensor("TOKEN", np.array([word.encode()], dtype=np.object_)),
                        pb_utils.Tensor("INDEX", np.array([index], dtype=np.int32)),
                    ]
                )
            )
        # without this the client would wait for more
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
