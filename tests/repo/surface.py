"""The modules of the core that add-ons import: nothing else of it is theirs.

A package stands for the names that its `__init__.py` has; of a module all public names are meant.
The floor is everybody's and not listed. The list may shrink; a further line needs its reason.
"""

from __future__ import annotations

SURFACE = {
    # the server and its command line
    "zmqtriton.broker.core": "the simulation runs the broker's own decisions",
    "zmqtriton.broker.requests.inflight": "a request that waits for its instance",
    "zmqtriton.broker.scheduling.batching": "the queue of a model, and its batches",
    "zmqtriton.broker.scheduling.instances": "the instances that can take one",
    "zmqtriton.broker.scheduling.placement": "the choice of an instance, and another one",
    "zmqtriton.broker.scheduling.scheduler": "what has both",
    "zmqtriton.addons": "the tables of commands and parts",
    "zmqtriton.command_line": "a whole command line, with files of options and the environment",
    "zmqtriton.options": "options of the server, parsed and described",
    "zmqtriton.supervisor": "to start the server in this process; features, stories, pauses",
    "zmqtriton.file_names": "what keeps a file from being written",
    "zmqtriton.host.capacity": "the memory of the machine and of control groups",
    "zmqtriton.host.fitness": "the lacks of the machine",
    "zmqtriton.host.gpus": "its GPUs",
    "zmqtriton.start.checks": "why a server would not start",
    "zmqtriton.start.ports": "who has a port",
    "zmqtriton.reading.blueprint": "a model as it was read",
    "zmqtriton.reading.python_settings": "settings of Triton's Python backend",
    "zmqtriton.runtime_places": "where runtime directories lie, and what lasts",
    # models on disk
    "zmqtriton.config": "configurations: read, completed, judged and printed",
    "zmqtriton.environments": "the Python that a model asks for",
    "zmqtriton.repository": "models and versions in directories; their agents",
    "zmqtriton.repository.file_state": "whether a file is as it was",
    "zmqtriton.store_places": "whether a repository is in a store",
    # programs that ask a server
    "zmqtriton.console": "tables for people",
    "zmqtriton.commit": "the version with its commit",
    "zmqtriton.control_client": "servers on this machine, asked at their control socket",
    "zmqtriton.findings": "the form of what check, doctor and explain say",
    "zmqtriton.long_steps": "how far a task is, told to the supervisor",
    "zmqtriton.standard_output": "an output that its reader has closed",
    "zmqtriton.otlp_destination": "where spans and metrics are sent",
    "zmqtriton.systemd": "variables of a service, and its invocation",
    # models in the user's process
    "zmqtriton_stub.loop": "an instance, from its begin to its end",
    "zmqtriton_stub.memory.tensor_memory": "the memory of an instance",
    "zmqtriton_stub.own_process": "what an instance changes of its process",
    "zmqtriton_stub.process": "an instance in a process that was forked for it",
    "zmqtriton_stub.api": "the classes that models meet",
    "zmqtriton_stub.api.dlpack": "tensors of other libraries, and given to them",
    "zmqtriton_stub.memory.gpu": "memory of GPUs: copied to, from and within them",
    # models in the process of a test, which plays the broker
    "zmqtriton.broker.sequences.controls": "control tensors, as the broker adds them",
    "zmqtriton_stub.instance": "the instance of the process",
    "zmqtriton_stub.played": "a stub whose broker is the caller",
    "zmqtriton_stub.model": "the model's code, imported and called",
    # frontends
    "zmqtriton_frontends.access.bearer_tokens": "what a token is good for and shows",
    "zmqtriton_frontends.access.refusals": "the refusal of a token",
    "zmqtriton_frontends.entrance": "the way of a request until it is sent",
    "zmqtriton_frontends.gateway": "the way to broker and supervisor",
    "zmqtriton_frontends.grpc_api.call": "a call, for another transport",
    "zmqtriton_frontends.grpc_api.handlers": "the table of RPCs",
    "zmqtriton_frontends.grpc_api.inference.response": "the size of a message",
    "zmqtriton_frontends.grpc_api.transport.lifecycle": "the life of a call",
    "zmqtriton_frontends.http_api": "HttpExtension, and the parts that its responders need",
    "zmqtriton_frontends.http_api.asgi.problems": "the form of errors",
    "zmqtriton_frontends.http_api.inference.tensor_data": "tensors in and behind the JSON",
    "zmqtriton_frontends.http_api.inference.infer_request": "the JSON of infer",
    "zmqtriton_frontends.http_api.inference.response_encoding": "that of its answer",
    "zmqtriton_frontends.http_api.inference.json_documents": "JSON, in a thread if it is long",
    "zmqtriton_frontends.inference": "models that are served; requests checked and traced",
    "zmqtriton_frontends.http1": "requests of HTTP/1.1, read from bytes, and heads of responses",
    "zmqtriton_frontends.process": "a frontend's memory and connections, and slow clients",
    "zmqtriton_frontends.process.codecs": "codings of bodies",
    "zmqtriton_frontends.process.handshakes": "when a certificate ends",
    "zmqtriton_frontends.process.hosts": "names that a server answers to",
    "zmqtriton_frontends.process.request_log": "the log of a frontend",
    "zmqtriton_frontends.serving": "the life of a process that serves",
    "zmqtriton_frontends.tensors.arena_body": "a large body, received where models map it",
    "zmqtriton_frontends.tensors.references": "whether a tensor is large",
    "zmqtriton_protos": "Triton's messages",
}
