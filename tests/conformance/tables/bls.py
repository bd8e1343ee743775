"""Models that ask other models: what comes back, and every way in which it fails."""

from __future__ import annotations

from tests.conformance.cases import Case, called, coded, tensor

REPOSITORY = "main"
X = tensor("X", "FP32", [1.0, 2.0])
FINAL = "pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"


def asks(text: str, model: str = "coded", more: str = "") -> str:
    """`asked` is a request to a model that does what the text says."""
    return (
        f"code = pb_utils.Tensor('CODE', np.array([{text!r}.encode()], dtype='O'))\n"
        f"asked = pb_utils.InferenceRequest(model_name='{model}', inputs=[code], "
        f"requested_output_names=['SAID']{more})\n"
    )


def exec_says(text: str, model: str = "coded_other", more: str = "") -> str:
    """Asks, and says what came back."""
    return asks(text, model, more) + "answer = asked.exec()\n" + SAYS


#: Of a response: its error or what it holds.
SAYS = (
    "if answer.has_error():\n"
    "    error = answer.error()\n"
    "    return [say('error', int(error.code()), error.message())]\n"
    "return [say(*[(t.name(), t.as_numpy().tolist()) for t in answer.output_tensors()])]"
)
TEXT_ONLY = SAYS.replace("int(error.code()), ", "")
ITERATED = (
    "seen = []\nfor answer in asked.exec(decoupled=True):\n"
    "    if answer.has_error():\n        seen.append(answer.error().message())\n"
    "    else:\n"
    "        seen.append([t.as_numpy().tolist() for t in answer.output_tensors()])\n"
    "return [say(*seen)]"
)
SENDER = "sender = request.get_response_sender()\n"
TWO = SENDER + f"sender.send(say(1))\nsender.send(say(2))\nsender.send(flags={FINAL})"
TWO_AND_FINAL = SENDER + f"sender.send(say(1))\nsender.send(say(2), {FINAL})"
AMID = (
    SENDER + "sender.send(say(1))\n"
    "sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError('on purpose')))\n"
    f"sender.send(say(2))\nsender.send(flags={FINAL})"
)

CASES = (
    Case("asked_another_model", coded(exec_says("return [say(7)]")), "A56", "its answer"),
    Case(
        "asked_another_model_over_grpc",
        called(exec_says("return [say(7)]")),
        "A56",
        "the same over gRPC",
    ),
    Case(
        "asked_with_all_properties",
        coded(
            exec_says(
                "return [say(request.request_id(), request.correlation_id(), request.flags(), "
                "request.timeout(), sorted(json.loads(request.parameters()).items()))]",
                more=", request_id='r', correlation_id='c', flags=3, timeout=50000000, "
                "parameters={'p': 1, 'b': False, 's': 'x'}",
            )
        ),
        "A50",
        "what the other model learns of the request",
    ),
    Case(
        "asked_with_a_version",
        coded(exec_says("return [say(7)]", more=", model_version=1")),
        "A50",
        "a version that is there",
    ),
    Case(
        "asked_a_version_that_is_not_there",
        coded(exec_says("return [say(7)]", more=", model_version=9").replace(SAYS, TEXT_ONLY)),
        "A60",
        "a version that is not there",
    ),
    Case(
        "asked_an_unknown_model",
        coded(exec_says("x", model="unknown").replace(SAYS, TEXT_ONLY)),
        "A60",
        "no such model",
    ),
    Case(
        "asked_a_model_without_a_name",
        coded(exec_says("x", model="").replace(SAYS, TEXT_ONLY)),
        "A60",
        "an empty name",
    ),
    Case(
        "asked_with_an_input_too_few",
        coded(
            "asked = pb_utils.InferenceRequest(model_name='coded_other', inputs=[], "
            "requested_output_names=['SAID'])\nanswer = asked.exec()\n" + TEXT_ONLY
        ),
        "A56",
        "an input is missing",
    ),
    Case(
        "asked_with_an_unknown_input",
        coded(
            "asked = pb_utils.InferenceRequest(model_name='coded_other', "
            "inputs=[pb_utils.Tensor('Z', np.ones(1, 'f4'))], "
            "requested_output_names=['SAID'])\nanswer = asked.exec()\n" + TEXT_ONLY
        ),
        "A56",
        "an input that the other model does not have",
    ),
    Case(
        "asked_with_an_input_of_another_type",
        coded(
            "asked = pb_utils.InferenceRequest(model_name='coded_other', "
            "inputs=[pb_utils.Tensor('CODE', np.ones(1, 'f4'))], "
            "requested_output_names=['SAID'])\nanswer = asked.exec()\n" + TEXT_ONLY
        ),
        "A56",
        "the wrong type",
    ),
    Case(
        "asked_with_an_input_of_another_shape",
        coded(
            "asked = pb_utils.InferenceRequest(model_name='coded_other', "
            "inputs=[pb_utils.Tensor('CODE', np.array([b'a', b'b'], dtype='O'))], "
            "requested_output_names=['SAID'])\nanswer = asked.exec()\n" + TEXT_ONLY
        ),
        "A56",
        "the wrong shape",
    ),
    Case(
        "asked_for_an_unknown_output",
        coded(
            asks("return [say(7)]", "coded_other").replace("['SAID']", "['OTHER']")
            + "answer = asked.exec()\n"
            + TEXT_ONLY
        ),
        "A56",
        "an output that the other model does not have",
    ),
    Case(
        "asked_for_no_output",
        coded(
            asks("return [say(7)]", "coded_other").replace("['SAID']", "[]")
            + "answer = asked.exec()\n"
            + SAYS
        ),
        "A56",
        "an empty list of names asks for all",
    ),
    Case(
        "asked_for_an_output_that_is_not_made",
        coded(
            asks("return [say(7)]", "coded_other").replace("['SAID']", "['Y']")
            + "answer = asked.exec()\n"
            + SAYS
        ),
        "A71",
        "a response without tensors",
    ),
    Case(
        "asked_one_that_raises",
        coded(exec_says("raise ValueError('on purpose')").replace(SAYS, TEXT_ONLY)),
        "A56",
        "an error, never an exception",
    ),
    Case(
        "asked_one_that_fails_with_a_code",
        coded(
            exec_says(
                "return [pb_utils.InferenceResponse(error=pb_utils.TritonError('on purpose', "
                "pb_utils.TritonError.NOT_FOUND))]"
            )
        ),
        "A75",
        "the code of the other model",
    ),
    Case(
        "error_of_another_model_as_ones_own",
        coded(
            asks("raise ValueError('on purpose')", "coded_other")
            + "return [pb_utils.InferenceResponse(error=asked.exec().error())]"
        ),
        "A75",
        "passed on as it came",
    ),
    Case(
        "response_of_another_model_as_ones_own",
        coded(asks("return [say(7)]", "coded_other") + "return [asked.exec()]"),
        "A56",
        "passed on as it came",
    ),
    Case(
        "tensor_of_another_model_as_ones_own",
        coded(
            asks("return [say(7)]", "coded_other")
            + "return [pb_utils.InferenceResponse(asked.exec().output_tensors())]"
        ),
        "A56",
        "a tensor that came, in a response of one's own",
    ),
    Case(
        "input_as_it_came_to_another_model",
        coded(
            "request.inputs()[0]\n"
            "asked = pb_utils.InferenceRequest(model_name='identity_fp32', inputs=["
            "pb_utils.Tensor('INPUT0', "
            "pb_utils.get_input_tensor_by_name(request, 'X').as_numpy())], "
            "requested_output_names=['OUTPUT0'])\nanswer = asked.exec()\n" + SAYS,
            X,
        ),
        "A56",
        "an input in a request of one's own",
    ),
    Case(
        "asked_twice_with_one_request",
        coded(
            asks("return [say(7)]", "coded_other")
            + "first = asked.exec()\nanswer = asked.exec()\n"
            + SAYS
        ),
        "A56",
        "a request may be asked again",
    ),
    Case(
        "asked_a_batching_model",
        coded(
            "inputs = [pb_utils.Tensor(n, np.full([2, 16], v, 'f4')) "
            "for n, v in (('INPUT0', 3), ('INPUT1', 1))]\n"
            "asked = pb_utils.InferenceRequest(model_name='add_sub', inputs=inputs, "
            "requested_output_names=['OUTPUT0', 'OUTPUT1'])\nanswer = asked.exec()\n"
            "return [say(*sorted((t.name(), t.shape(), t.as_numpy()[0, 0].item()) "
            "for t in answer.output_tensors()))]"
        ),
        "A56",
        "with the dimension of the batch",
    ),
    Case(
        "asked_with_too_large_a_batch",
        coded(
            "inputs = [pb_utils.Tensor(n, np.zeros([9, 16], 'f4')) "
            "for n in ('INPUT0', 'INPUT1')]\n"
            "asked = pb_utils.InferenceRequest(model_name='add_sub', inputs=inputs, "
            "requested_output_names=['OUTPUT0'])\nanswer = asked.exec()\n" + TEXT_ONLY
        ),
        "A56",
        "more than the other model takes",
    ),
    # ------------------------------------------------------------------- decoupled
    Case(
        "asked_a_decoupled_model_for_one",
        coded(exec_says(TWO, model="coded_decoupled").replace(SAYS, TEXT_ONLY)),
        "A58",
        "exec without decoupled=True",
    ),
    Case(
        "asked_a_decoupled_model",
        coded(asks(TWO, "coded_decoupled") + ITERATED),
        "A59",
        "each response, and an empty last one",
    ),
    Case(
        "asked_a_decoupled_model_whose_last_is_final",
        coded(asks(TWO_AND_FINAL, "coded_decoupled") + ITERATED),
        "A59",
        "no empty one where the last is final",
    ),
    Case(
        "asked_a_decoupled_model_that_fails_amid",
        coded(asks(AMID, "coded_decoupled") + ITERATED),
        "A59",
        "an error among the responses",
    ),
    Case(
        "asked_a_decoupled_model_that_raises",
        coded(asks("raise ValueError('on purpose')", "coded_decoupled") + ITERATED),
        "A59",
        "the exception is the last response",
    ),
    Case(
        "asked_one_that_answers_once_as_if_decoupled",
        coded(asks("return [say(7)]", "coded_other") + ITERATED),
        "A59",
        "an iterator of one",
    ),
    Case(
        "asked_an_unknown_model_as_if_decoupled",
        coded(asks("x", "unknown") + ITERATED),
        "A59",
        "an iterator of one error",
    ),
    Case(
        "iterated_twice",
        coded(
            asks(TWO, "coded_decoupled")
            + "answers = asked.exec(decoupled=True)\n"
            + "return [say(len(list(answers)), len(list(answers)))]"
        ),
        "A59",
        "an iterator starts over",
    ),
    Case(
        "next_beyond_the_end",
        coded(
            asks(TWO_AND_FINAL, "coded_decoupled")
            + "answers = iter(asked.exec(decoupled=True))\n"
            + "next(answers), next(answers), next(answers)\nreturn [say('not reached')]"
        ),
        "A59",
        "StopIteration in execute",
    ),
    # ----------------------------------------------------------------------- async
    Case(
        "awaited_another_model",
        coded(
            asks("return [say(7)]", "coded_other") + "answer = await asked.async_exec()\n" + SAYS,
            model="coded_async",
        ),
        "A57",
        "its answer",
    ),
    Case(
        "awaited_two_at_once",
        coded(
            asks("return [say(7)]", "coded_other")
            + "answers = await asyncio.gather(asked.async_exec(), asked.async_exec())\n"
            + "return [say(*[a.output_tensors()[0].as_numpy().tolist() for a in answers])]",
            model="coded_async",
        ),
        "A57",
        "in the order of the asking",
    ),
    Case(
        "awaited_a_decoupled_model",
        coded(
            asks(TWO, "coded_decoupled")
            + "answers = await asked.async_exec(decoupled=True)\n"
            + "return [say(*[len(a.output_tensors()) for a in answers])]",
            model="coded_async",
        ),
        "A59",
        "an iterator, awaited",
    ),
    Case(
        "awaited_a_decoupled_model_for_one",
        coded(
            asks(TWO, "coded_decoupled") + "answer = await asked.async_exec()\n" + TEXT_ONLY,
            model="coded_async",
        ),
        "A58",
        "without decoupled=True",
    ),
    Case(
        "awaited_an_unknown_model",
        coded(
            asks("x", "unknown") + "answer = await asked.async_exec()\n" + TEXT_ONLY,
            model="coded_async",
        ),
        "A57",
        "an error, never an exception",
    ),
    Case(
        "awaited_without_a_loop",
        coded(asks("return [say(7)]", "coded_other") + "asked.async_exec()\nreturn [say(1)]"),
        "A57",
        "no event loop runs",
    ),
    # --------------------------------------------------------------- control of models
    Case(
        "asked_whether_a_model_is_ready",
        coded("return [say(pb_utils.is_model_ready('coded_other'))]"),
        "A95",
        "it is",
    ),
    Case(
        "asked_whether_a_version_is_ready",
        coded(
            "return [say(pb_utils.is_model_ready(model_name='coded_other', model_version='1'), "
            "pb_utils.is_model_ready(model_name='coded_other', model_version='9'))]"
        ),
        "A95",
        "one is, one is not there",
    ),
    Case(
        "asked_whether_an_unknown_model_is_ready",
        coded("return [say(pb_utils.is_model_ready('unknown'))]"),
        "A95",
        "a model that is not there is not ready",
    ),
    Case(
        "asked_whether_a_version_that_is_no_number_is_ready",
        coded("return [say(pb_utils.is_model_ready('coded_other', 'x'))]"),
        "A95",
        "a version must be a number",
    ),
    Case(
        "loaded_an_unknown_model",
        coded("pb_utils.load_model(model_name='unknown')\nreturn [say('not reached')]"),
        "A95",
        "there is no such directory",
    ),
    Case(
        "unloaded_an_unknown_model",
        coded("pb_utils.unload_model(model_name='unknown')\nreturn [say('done')]"),
        "A95",
        "nothing to unload is no error",
    ),
    Case(
        "loaded_with_files_that_are_no_dictionary",
        coded("pb_utils.load_model('coded_other', '{}', files=['x'])\nreturn [say('not reached')]"),
        "A95",
        "files are paths with contents",
    ),
    Case(
        "loaded_with_files_and_no_config",
        coded(
            "pb_utils.load_model('coded_other', files={'file:1/model.py': b''})\n"
            "return [say('not reached')]"
        ),
        "A95",
        "files need a configuration",
    ),
    Case(
        "unloaded_and_loaded",
        (
            coded(
                "before = pb_utils.is_model_ready('identity_fp32')\n"
                "pb_utils.unload_model('identity_fp32')\n"
                "pb_utils.load_model('identity_fp32')\n"
                "return [say(before, pb_utils.is_model_ready('identity_fp32'))]"
            ),
        ),
        "A95",
        "ready before and after",
    ),
    # ----------------------------------------------------------------- metrics, logs
    Case(
        "family_of_a_counter",
        coded(
            "family = pb_utils.MetricFamily(name='conformance_c', description='d', "
            "kind=pb_utils.MetricFamily.COUNTER)\n"
            "metric = family.Metric(labels={'a': 'b'})\n"
            "metric.increment(2)\nmetric.increment(0.5)\nreturn [say(metric.value())]"
        ),
        "A93",
        "what a counter counts",
    ),
    Case(
        "counter_that_goes_down",
        coded(
            "family = pb_utils.MetricFamily(name='conformance_d', description='d', "
            "kind=pb_utils.MetricFamily.COUNTER)\n"
            "family.Metric(labels={}).increment(-1)"
        ),
        "A93",
        "a counter only grows",
    ),
    Case(
        "counter_that_is_set",
        coded(
            "family = pb_utils.MetricFamily(name='conformance_e', description='d', "
            "kind=pb_utils.MetricFamily.COUNTER)\n"
            "family.Metric(labels={}).set(1)"
        ),
        "A93",
        "a counter cannot be set",
    ),
    Case(
        "gauge_that_goes_down",
        coded(
            "family = pb_utils.MetricFamily(name='conformance_g', description='d', "
            "kind=pb_utils.MetricFamily.GAUGE)\n"
            "metric = family.Metric()\n"
            "metric.set(3)\nmetric.increment(-5)\nreturn [say(metric.value())]"
        ),
        "A93",
        "a gauge goes both ways",
    ),
    Case(
        "labels_that_are_a_list",
        coded(
            "family = pb_utils.MetricFamily(name='conformance_l', description='d', "
            "kind=pb_utils.MetricFamily.GAUGE)\n"
            "family.Metric(labels=['a'])"
        ),
        "A92",
        "labels are a dictionary",
    ),
    Case(
        "family_of_two_kinds",
        coded(
            "one = pb_utils.MetricFamily(name='conformance_t', description='d', "
            "kind=pb_utils.MetricFamily.GAUGE)\n"
            "pb_utils.MetricFamily(name='conformance_t', description='d', "
            "kind=pb_utils.MetricFamily.COUNTER)"
        ),
        "A91",
        "the same name as another kind",
    ),
    Case(
        "metric_whose_family_is_gone",
        coded(
            "family = pb_utils.MetricFamily(name='conformance_x', description='d', "
            "kind=pb_utils.MetricFamily.COUNTER)\n"
            "metric = family.Metric(labels={})\ndel family\nmetric.increment(1)\n"
            "return [say('not reached')]"
        ),
        "A93",
        "a metric without its family",
    ),
    Case(
        "logged_something_that_is_no_text",
        coded("pb_utils.Logger.log_info(5)\nreturn [say('not reached')]"),
        "A90",
        "a message is a text",
    ),
    Case(
        "logged_at_every_level",
        coded(
            "for level in (pb_utils.Logger.INFO, pb_utils.Logger.WARNING, "
            "pb_utils.Logger.ERROR, pb_utils.Logger.VERBOSE):\n"
            "    pb_utils.Logger.log('conformance', level)\nreturn [say('done')]"
        ),
        "A90",
        "every level can be used",
    ),
)
