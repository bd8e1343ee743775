"""Writes the config.pbtxt and the model.py of a new model."""

from __future__ import annotations

from collections.abc import Sequence

from zmqtriton_extras.authoring.new_model.draft import RESPONSES, Draft, Kind, TensorSpec, listed

_HEAD = '''\
"""{title}"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        """Called once in each process: load what every request needs here."""
{initialize}
'''
_PLAIN = '''
    def execute(self, requests):
        """Called with the requests of a batch; returns a response to each, in the same order."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
{inputs}
        # Replace this by your own computation. If it raises, the client gets the error.
{outputs}
        return pb_utils.InferenceResponse([{tensors}])
'''
_TOGETHER = '''
    def execute(self, requests):
        """Called with the requests of a batch; returns a response to each, in the same order."""
        # The rows of all requests are computed at once.
{inputs}
        # Replace this by your own computation. If it raises, the clients get the error.
{outputs}
        responses, end = [], 0
        for request in requests:
            begin, end = end, end + request.inputs()[0].shape()[0]  # its rows
            responses.append(pb_utils.InferenceResponse([{tensors}]))
        return responses


def joined(requests, name):
    """Return the rows of all requests as one array."""
    tensors = [pb_utils.get_input_tensor_by_name(request, name) for request in requests]
    return np.concatenate([tensor.as_numpy() for tensor in tensors])
'''
_DECOUPLED = '''
    def execute(self, requests):
        """Called with the requests of a batch; responses go through senders, also from threads."""
        for request in requests:
            self.answer(request)

    def answer(self, request):
{inputs}
        sender = request.get_response_sender()
        for step in range(1, {last}):
            if request.is_cancelled():  # the client has gone
                break
            # Replace this by your own computation. If it raises, the client gets the error.
{outputs}
            sender.send(pb_utils.InferenceResponse([{tensors}]))
        # Each request needs this once, as the last word.
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''
_SEQUENCE = '''
    def execute(self, requests):
        """Called with requests of different sequences; returns a response to each, in order."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
{inputs}
        sequence, flags = request.correlation_id(), request.flags()
        # Replace this by your own computation. If it raises, the client gets the error.
        if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            total = {first}
        else:
            total = self.totals[sequence] + {first}
        self.totals[sequence] = total
        if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            del self.totals[sequence]
{outputs}
        return pb_utils.InferenceResponse([{tensors}])
'''
_BLS = '''
    def execute(self, requests):
        """Called with the requests of a batch; returns a response to each, in the same order."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        call = pb_utils.InferenceRequest(
            model_name="{callee}",
            requested_output_names=[{names}],
            inputs=request.inputs(),  # or others: pb_utils.Tensor("{first}", array)
        )
        response = call.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        # Here may stand more: other calls, or a computation with the outputs.
        return pb_utils.InferenceResponse(response.output_tensors())
'''
_FORMS = {
    Kind.PLAIN: ("{name}: answers each request.", _PLAIN),
    Kind.DECOUPLED: ("{name}: answers each request with a stream of responses.", _DECOUPLED),
    Kind.SEQUENCE: ("{name}: adds up what each sequence of requests brings.", _SEQUENCE),
    Kind.BLS: ("{name}: answers each request by asking the model {callee}.", _BLS),
}
_UNBATCHED = """\
# Requests are executed one at a time. With `max_batch_size: 8` and `dynamic_batching { }` up to 8
# are executed together; every tensor then has the batch as its first dimension, which `dims`
# leave out.
max_batch_size: 0
"""
_BATCHED = """\
# Every tensor has the batch as its first dimension, which `dims` leave out.
max_batch_size: {size}
"""
_BATCHING = """
# Requests that wait are executed together. With a delay, the first one waits for others:
# dynamic_batching { max_queue_delay_microseconds: 500 }
dynamic_batching { }
"""
_STREAMED = """
# Any number of responses to each request, at any time.
model_transaction_policy { decoupled: true }
"""
_SEQUENCES = """
# Requests with the same sequence id go to the same instance, one after the other.
sequence_batching {
  # After this time without a request a sequence is over.
  max_sequence_idle_microseconds: 60000000
  # How many may be open in an instance at once; others wait for one of them to end.
  oldest { max_candidate_sequences: 1000 }
}
"""
_INSTANCES = """
# How many processes run the model.
instance_group [ { count: 1, kind: KIND_CPU } ]
"""


def config_text(draft: Draft) -> str:
    size = _BATCHED.format(size=draft.max_batch_size) if draft.is_batching else _UNBATCHED
    pieces = ['backend: "python"\n\n', size, _entries("input", draft.inputs)]
    pieces.append(_entries("output", draft.outputs))
    if draft.kind is Kind.SEQUENCE:
        pieces.append(_SEQUENCES)
    elif draft.is_batching:
        pieces.append(_BATCHING)
    if draft.kind is Kind.DECOUPLED:
        pieces.append(_STREAMED)
    return "".join([*pieces, _INSTANCES])


def _entries(section: str, tensors: Sequence[TensorSpec]) -> str:
    rows = (
        f'  {{ name: "{tensor.name}", data_type: {tensor.datatype.config_name}, '
        f"dims: [ {', '.join(map(str, tensor.dims))} ] }}"
        for tensor in tensors
    )
    note = "" if section == "output" else "\n# A dimension of -1 may have any size."
    return f"{note}\n{section} [\n" + ",\n".join(rows) + "\n]\n"


def model_text(draft: Draft) -> str:
    title, form = _FORMS[draft.kind]
    if _is_together(draft):
        form = _TOGETHER
    initialize = "        pb_utils.Logger.log_info(f\"hello from {args['model_instance_name']}\")"
    if draft.kind is Kind.SEQUENCE:
        initialize = "        self.totals = {}  # of the sequences that have begun, by their ids"
    source = draft.inputs[0]
    text = (_HEAD + form).format(
        title=title.format(name=draft.name, callee=draft.callee),
        initialize=initialize,
        inputs=_inputs(draft),
        outputs=_outputs(draft),
        tensors=_tensors(draft),
        first=source.name if draft.kind is Kind.BLS else source.variable,
        last=RESPONSES + 1,
        callee=draft.callee,
        names=", ".join(f'"{tensor.name}"' for tensor in draft.outputs),
    )
    return text if "np." in text else text.replace("import numpy as np\n", "")


def _is_together(draft: Draft) -> bool:
    """Return True if the model computes the rows of several requests at once."""
    return draft.kind is Kind.PLAIN and draft.is_batching


def _inputs(draft: Draft) -> str:
    if _is_together(draft):
        rows = (f'{one.variable} = joined(requests, "{one.name}")' for one in draft.inputs)
        return "\n".join(f"        {row}" for row in rows)
    return "\n".join(
        f"        {tensor.variable} = "
        f'pb_utils.get_input_tensor_by_name(request, "{tensor.name}").as_numpy()'
        for tensor in draft.inputs
    )


def _outputs(draft: Draft) -> str:
    return "\n".join(
        f"{' ' * _indent(draft)}{_result(draft, index)} = {expression.code}"
        for index, expression in enumerate(draft.expressions())
    )


def _tensors(draft: Draft) -> str:
    rows, indent = ("[begin:end]", 12) if _is_together(draft) else ("", _indent(draft))
    tensors = [
        f'pb_utils.Tensor("{tensor.name}", {_result(draft, index)}{rows})'
        for index, tensor in enumerate(draft.outputs)
    ]
    return listed(tensors, indent)


def _indent(draft: Draft) -> int:
    """Return the number of spaces before the statements that make a response."""
    return 12 if draft.kind is Kind.DECOUPLED else 8


def _result(draft: Draft, index: int) -> str:
    """Return the variable of an output; an input may have the same name."""
    variable = draft.outputs[index].variable
    return f"new_{variable}" if variable in {one.variable for one in draft.inputs} else variable
