from __future__ import annotations

import sys

import pytest

from zmqtriton_extras.openai.templates import RefusedChatError, render
from zmqtriton_floor.errors import InternalError, InvalidArgument, Unsupported

CHAT = [{"role": "user", "content": "{{ 1 + 1 }} é"}]


def test_a_template_gets_what_language_models_expect() -> None:
    text = (
        "{%- for m in messages %}{{ bos_token }}<{{ m.role }}>{{ m.content }}{% break %}"
        "{% endfor %}{% if add_generation_prompt and not tools %}<assistant>{% endif %}"
        "{{ messages | tojson }}"
    )

    # what the client says is no template
    assert (
        render("m", text, CHAT, "")
        == '<user>{{ 1 + 1 }} é<assistant>[{"role": "user", "content": "{{ 1 + 1 }} é"}]'
    )


def test_variables_of_the_model_are_known() -> None:
    assert render("m", "{{ bos_token }}", CHAT, '{"bos_token": "<s>"}') == "<s>"


@pytest.mark.parametrize("variables", ["{", "[]", "7", "[" * 100_000], ids=lambda text: text[:9])
def test_variables_that_are_no_object_are_told(variables: str) -> None:
    with pytest.raises(InvalidArgument, match="of model 'm' is no JSON object"):
        render("m", "", CHAT, variables)


def test_a_template_that_is_none_is_told_with_its_line() -> None:
    with pytest.raises(InternalError, match="of model 'm' has an error in line 2: "):
        render("m", "\n{% for %}", CHAT, "")


@pytest.mark.parametrize(
    "text",
    [
        '{{ raise_exception("roles must alternate") }}',
        "{{ messages[7].content.upper() }}",
        "{{ 1 / 0 }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10000000) %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_what_a_template_cannot_do_refuses_the_messages(text: str) -> None:
    with pytest.raises(RefusedChatError, match="of model 'm' does not take these messages"):
        render("m", text, CHAT, "")


def test_without_jinja_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)

    with pytest.raises(Unsupported, match=r"pip install jinja2"):
        render("without", "{{ 1 }}", CHAT, "")
