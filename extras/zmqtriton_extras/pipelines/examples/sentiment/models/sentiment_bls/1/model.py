import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Calls tokenizer, classifier and verdict, for all requests at the same time.

    So the classifier, whose batcher waits a moment, computes them together.
    """

    async def execute(self, requests):
        return await asyncio.gather(*(self.answer(request) for request in requests))

    async def answer(self, request):
        try:
            query = pb_utils.get_input_tensor_by_name(request, "QUERY")
            ids, mask = await ask("tokenizer", [query], ["INPUT_IDS", "ATTENTION_MASK"])
            [logits] = await ask("classifier", [ids, mask], ["LOGITS"])
            outputs = await ask("verdict", [logits], ["LABEL", "SCORE"])
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse(outputs)


async def ask(model, inputs, outputs):
    """Return the named outputs of another model."""
    request = pb_utils.InferenceRequest(
        model_name=model, requested_output_names=outputs, inputs=inputs
    )
    response = await request.async_exec()
    if response.has_error():
        raise pb_utils.TritonModelException(f"{model}: {response.error().message()}")
    return [pb_utils.get_output_tensor_by_name(response, name) for name in outputs]
