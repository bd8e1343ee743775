from __future__ import annotations

from zmqtriton.config.parameters import OPENAI_PARAMETERS
from zmqtriton_extras.openai.tensor_names import INPUTS, OUTPUTS, VALUES


def test_names_of_parameters_are_those_that_are_read() -> None:
    read = {*INPUTS, *OUTPUTS, *VALUES, "openai_chat_template", "openai_chat_template_variables"}

    assert read == set(OPENAI_PARAMETERS)
