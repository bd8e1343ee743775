from __future__ import annotations

from zmqtriton_extras.openai import ADDON
from zmqtriton_extras.openai.tensor_names import INPUTS, OUTPUTS, VALUES


def test_names_of_parameters_are_those_that_are_read() -> None:
    read = {*INPUTS, *OUTPUTS, *VALUES, "openai_chat_template", "openai_chat_template_variables"}

    assert read == ADDON.parameters.keys()
