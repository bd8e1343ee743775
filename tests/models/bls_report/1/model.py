import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Asks as ASK says, a JSON document, and reports the responses as one.

    ASK: the arguments of InferenceRequest, the inputs as {name: [datatype of numpy, values]};
    `stream` for decoupled=True, `take` for how many responses are taken before it cancels.
    """

    def execute(self, requests):
        return [self._report(request) for request in requests]

    def _report(self, request):
        ask = json.loads(pb_utils.get_input_tensor_by_name(request, "ASK").as_numpy()[0])
        stream, take = ask.pop("stream", False), ask.pop("take", None)
        ask["inputs"] = [
            pb_utils.Tensor(name, np.array(values, dtype=datatype))
            for name, (datatype, values) in ask["inputs"].items()
        ]
        answered = pb_utils.InferenceRequest(**{"requested_output_names": [], **ask}).exec(stream)
        responses = self._take(answered, take) if stream else [answered]
        described = [self._describe(response) for response in responses]
        report = json.dumps(described, default=bytes.decode)
        output = pb_utils.Tensor("REPORT", np.array([report.encode()], dtype=np.object_))
        return pb_utils.InferenceResponse(output_tensors=[output])

    def _take(self, iterator, take):
        responses = []
        for response in iterator:
            responses.append(response)
            if len(responses) == take:
                iterator.cancel()
        return responses

    def _describe(self, response):
        if response.has_error():
            error = response.error()
            return {"error": error.message(), "code": error.code().name}
        outputs = {t.name(): t.as_numpy().tolist() for t in response.output_tensors()}
        return {"outputs": outputs, "parameters": json.loads(response.parameters())}
