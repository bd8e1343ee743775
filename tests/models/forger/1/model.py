"""Refers to memory as FORGE says, in its response or in a request to another model."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        forge = json.loads(pb_utils.get_input_tensor_by_name(request, "FORGE").as_numpy()[0])
        # While it is held it is mapped.
        held = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        # Where no model should look.
        from zmqtriton_stub import instance

        memory = instance.current.memory
        # where the input itself lies, which no public name tells
        seen = [
            [*segment_of[0], view.block.block, view.start, view.end - view.start]
            for segment_of in memory.mappings._segments.items()
            for view in list(segment_of[1].views.values())
            if np.shares_memory(view(), held)
        ]
        report = pb_utils.Tensor("SEEN", np.array([json.dumps(seen)], np.object_))
        if forge is None:
            return pb_utils.InferenceResponse([report])
        self._forge(memory, forge)
        made = np.zeros(forge["reference"][4] // 4 % 10_000_000, np.float32)
        if not forge.get("asks"):
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", made)])
        call = pb_utils.InferenceRequest(
            model_name="identity_fp32",
            requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.Tensor("INPUT0", made)],
        )
        answered = call.exec()
        if answered.has_error():
            return pb_utils.InferenceResponse(error=answered.error())
        return pb_utils.InferenceResponse(answered.output_tensors())

    def _forge(self, memory, forge):
        """Have the next tensor placed where it does not lie."""
        from zmqtriton_floor import wire

        place = memory.place

        def forged(rows, *how):
            memory.place = place
            reference = wire.Reference(*forge["reference"])
            shape = [forge.get("elements", reference.size // 4)]
            placed = [row._replace(data=reference, shape=shape) for row in rows]
            return placed, [wire.Block(*block) for block in forge["blocks"]]

        memory.place = forged
