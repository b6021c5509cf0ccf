"""Prompt templates: what is refused and how it is explained, and what comes out."""

from __future__ import annotations

import sys
import tracemalloc
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.services.prompts import (
    MAX_PROMPT_LENGTH,
    MAX_TEMPLATE_LENGTH,
    MAX_VALUE_LENGTH,
    PromptError,
    PromptFinding,
    parse_prompt,
)

SNEAKER = "a red sneaker on {{ backdrop }}, {{ geography }}, for {{ audience }}"


def findings(text: str) -> list[PromptFinding]:
    with pytest.raises(PromptError) as caught:
        parse_prompt(text)
    return caught.value.findings


def only_finding(text: str) -> PromptFinding:
    (finding,) = findings(text)
    return finding


def render(text: str, **values: str) -> str:
    return parse_prompt(text).render(values).text


def test_placeholders_come_in_text_order_with_their_place() -> None:
    parsed = parse_prompt("one {{ city }}\ntwo {{ audience|upper }} and {{ city }}")
    assert [
        (item.name, item.line, item.column, item.offset, item.filters)
        for item in parsed.placeholders
    ] == [("city", 1, 8, 7, ()), ("audience", 2, 8, 22, ("upper",))]


def test_rendering_says_where_each_value_stands() -> None:
    rendered = parse_prompt(SNEAKER).render(
        {"backdrop": "beach", "geography": "Paris", "audience": "young runners"}
    )
    assert rendered.text == "a red sneaker on beach, Paris, for young runners"
    assert rendered.spans == (
        ("backdrop", "beach", 17, 22),
        ("geography", "Paris", 24, 29),
        ("audience", "young runners", 35, 48),
    )


def test_a_span_holds_the_value_as_it_was_filtered() -> None:
    rendered = parse_prompt("in {{ city|trim|upper }}!").render({"city": " Paris "})
    assert rendered.text == "in PARIS!"
    assert rendered.spans == (("city", "PARIS", 3, 8),)


def test_white_space_control_keeps_places_right() -> None:
    parsed = parse_prompt("in   {{- city -}}   , for {{ audience }}")
    rendered = parsed.render({"city": "Rome", "audience": "gamers"})
    assert rendered.text == "inRome, for gamers"
    assert [item.column for item in parsed.placeholders] == [10, 30]
    assert all(rendered.text[start:end] == value for _, value, start, end in rendered.spans)


@pytest.mark.parametrize(
    ("template", "column", "placeholder", "advice"),
    [
        ("go {% for city in cities %}{{ city }}{% endfor %}", 7, "city", "one value per line"),
        ("go {{ city.name }}", 11, "city", "{{ city_name }}"),
        ("go {{ city['name'] }}", 11, "city", "{{ city_name }}"),
        ("go {{ city() }}", 11, "city", "without parentheses"),
        ("go {{ lipsum(n=100000) }}", 13, "lipsum", "without parentheses"),
        ("go {{ city + 1 }}", 7, "city", "write {{ city }} alone"),
        ("go {{ 'a' * 1000000000 }}", 7, None, "write the result itself"),
        ("go {{ 9 ** 9 }}", 7, None, "write the result itself"),
        ("go {{ '%1000000000d' % city }}", 7, "city", "write {{ city }} alone"),
        ("go {{ -city }}", 7, "city", "write {{ city }} alone"),
        ("go {{ city ~ place }}", 7, "city", "as in {{ city }}{{ place }}"),
        ("go {{ city-name }}", 7, "city", "write {{ city_name }}"),
        ("go {{ city if city else 'x' }}", 7, "city", "{% if city %}{{ city }}{% else %}"),
        ("go {{ city is defined }}", 12, "city", "{% if city %}"),
        ("go {{ [city] }}", 7, "city", "only a name"),
        ("go {{ none }}", 7, None, "only a name"),
        ("{% macro x() %}{% endmacro %}", 4, None, "write the text where it is wanted"),
        ("{% set city = 'x' %}", 4, "city", "give its text as a value"),
        ("{% include 'x' %}", 4, None, "write their text here"),
        ("{% block x %}{% endblock %}", 4, None, "only {% if %}"),
        ("{% filter upper %}x{% endfilter %}", 4, None, "{{ name|upper }}"),
        ("go {{ city|center(1000000000) }}", 12, "city", "there are lower, upper"),
        ("go {{ city|indent(1000000000) }}", 12, "city", "there is no filter “indent”"),
        ("go {{ city|replace('a', 'aa') }}", 12, "city", "there is no filter “replace”"),
        ("go {{ city|attr('__class__') }}", 12, "city", "there is no filter “attr”"),
        ("go {{ city|uper }}", 12, "city", "write “upper”"),
        ("go {{ city|upper(2) }}", 12, "city", "{{ name|upper }}"),
        ("go {{ city|default }}", 12, "city", '{{ name|default("anywhere") }}'),
        ("go {{ city|default(other) }}", 12, "city", '{{ name|default("anywhere") }}'),
        ("go {{ city|truncate(1000000) }}", 12, "city", "from 1 to 500"),
        ("go {{ city|truncate(true) }}", 12, "city", "from 1 to 500"),
        ("{% if city > 3 %}x{% endif %}", 7, "city", "==, !=, in, not in"),
        ("{% if city == 3 %}x{% endif %}", 15, None, "put it in quotes"),
        ("{% if city.x %}x{% endif %}", 11, "city", "{{ city_x }}"),
        ("{% if city is defined %}x{% endif %}", 12, "city", "{% if city %}"),
        ("a {city} b", 3, "city", "write {{ city }}"),
        ("a }} b", 3, None, "closes nothing"),
        ("a\x00b", 2, None, "U+0000"),
    ],
)
def test_what_is_not_on_the_list_is_refused_with_its_place_and_what_to_write(
    template: str, column: int, placeholder: str | None, advice: str
) -> None:
    finding = findings(template)[0]
    assert (finding.line, finding.column, finding.placeholder) == (1, column, placeholder)
    assert advice in finding.message


@pytest.mark.parametrize(
    ("template", "column", "placeholder", "advice"),
    [
        ("go {{ city", 4, "city", "never closed; write {{ city }}"),
        ("go {{", 4, None, "never closed"),
        ("go {{ city } now", 4, "city", "never closed; write {{ city }}"),
        ("go {{ }} now", 4, None, "no name between the braces"),
        ("go {{{ city }}} now", 4, "city", "two braces on each side"),
        ("go {{ first name }}", 4, "first", "write {{ first_name }}"),
        ("go {{ city? }}", 4, "city", "write {{ city }}"),
        ("go {{ city | }}", 4, "city", "cannot be read; write {{ city }}"),
        ("go {% if city %}x", 4, None, "{% if %} is never closed"),
        ("go {% if city %}{{ city }}", 4, None, "{% if %} is never closed"),
        ("go {% endif %}", 4, None, "closes no {% if %}"),
        ("go {% repeat %}", 4, None, "there is no {% repeat %}"),
        ("go {% for city in cities %}{{ city }}", 4, None, "one value per line"),
        ("go {% if city", 4, None, "“{%” is never closed"),
        ("go {# note", 4, None, "comment {# is never closed"),
    ],
)
def test_a_syntax_error_is_explained(
    template: str, column: int, placeholder: str | None, advice: str
) -> None:
    finding = only_finding(template)
    assert (finding.line, finding.column, finding.placeholder) == (1, column, placeholder)
    assert advice in finding.message


def test_an_unclosed_placeholder_before_another_is_the_one_that_is_named() -> None:
    finding = only_finding("on {{ backdrop , in {{ geography }}")
    assert (finding.column, finding.placeholder) == (4, "backdrop")


def test_every_fault_is_reported_at_once_in_text_order() -> None:
    found = findings("{{ a. }} then {{ b c }}\nthen {{ d.e }} and {{ f|center(3) }} {{ g }")
    assert [(item.line, item.column, item.placeholder) for item in found] == [
        (1, 1, "a"),
        (1, 15, "b"),
        (2, 10, "d"),
        (2, 25, "f"),
        (2, 38, "g"),
    ]


def test_the_message_of_the_error_names_place_and_placeholder() -> None:
    with pytest.raises(PromptError) as caught:
        parse_prompt("in {{ city.name }}")
    assert caught.value.message.startswith(
        "Line 1, column 11, {{ city.name }}: a dot is not allowed"
    )
    assert (caught.value.status, caught.value.field) == (400, "prompt")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "go {% for x in xs %}{{ x }}{% endfor %}",
            "line 1, column 7, {% for x in xs %}: loops are not allowed; write {{ x }} alone and"
            " give it one value per line, each makes a variant",
        ),
        (
            "go\n  {{-  a +\n 1 }}",
            "line 2, column 8, {{- a + 1 }}: nothing is worked out here; write {{ a }} alone and"
            " give it finished values",
        ),
        (
            "on {{ backdrop , in {{ geography }}",
            "line 1, column 4, {{ backdrop , in: “{{” is never closed; write {{ backdrop }}",
        ),
        (
            "in {city}",
            "line 1, column 4, {city}: a placeholder has two braces on each side; write {{ city }}",
        ),
        ("in }}", 'line 1, column 4, }}: this closes nothing; to show it, write {{ "}}" }}'),
        (
            "{{ " + "a" * 40 + ".b + " + "c" * 40 + " }}",
            "line 1, column 4, {{ " + "a" * 40 + ".b + " + "c" * 12 + "…: nothing is worked out"
            " here; write {{ " + "a" * 40 + " }} alone and give it finished values",
        ),
    ],
)
def test_a_message_names_what_was_written_and_what_to_write_instead(
    template: str, message: str
) -> None:
    assert str(only_finding(template)) == message


@pytest.mark.parametrize(
    "template",
    [
        "{{ " + "(" * 1500 + "x" + ")" * 1500 + " }}",
        "{{ x" + ".a" * 1900 + " }}",
        "{{ x" + "|trim" * 700 + " }}",
        "{% if " + "not " * 900 + "x %}a{% endif %}",
        "{% if x %}" * 150 + "{% endif %}" * 150,
        "{{ 'a' * 200000000 }}",
        "{{ " + "9**" * 1000 + "9 }}",
    ],
)
def test_a_bomb_is_refused_in_few_steps_and_in_little_memory(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a template was evaluated or compiled")

    # Jinja goes through these before it computes a constant, and before it writes code.
    monkeypatch.setattr("jinja2.nodes.get_eval_context", refuse)
    monkeypatch.setattr("jinja2.environment.generate", refuse)
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    tracemalloc.start()
    sys.setprofile(count)
    try:
        found = findings(template)
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert found
    # Calls are counted, not seconds: reading goes over each character a few dozen times at most.
    assert steps < 100 * MAX_TEMPLATE_LENGTH
    assert peak < 32 * 1024 * 1024


def test_length_is_capped_for_template_value_and_result() -> None:
    assert "4,000 are allowed" in only_finding("x" * (MAX_TEMPLATE_LENGTH + 1)).message
    with pytest.raises(PromptError) as caught:
        render("in {{ city }}", city="x" * (MAX_VALUE_LENGTH + 1))
    assert caught.value.findings[0].placeholder == "city"
    assert "this value has 2,001 characters; 2,000 are allowed" in caught.value.message
    with pytest.raises(PromptError, match="5,000 are allowed"):
        render("{{ city }}" * 20, city="x" * (MAX_PROMPT_LENGTH // 20 + 1))


@pytest.mark.parametrize("template", ["", "  \n "])
def test_an_empty_prompt_is_refused(template: str) -> None:
    assert "empty" in only_finding(template).message


def test_names_that_differ_by_case_alone_are_refused() -> None:
    finding = only_finding("{{ city }} and {{ City }}")
    assert (finding.placeholder, finding.column) == ("City", 19)


def test_a_missing_value_names_each_placeholder() -> None:
    with pytest.raises(PromptError) as caught:
        parse_prompt(SNEAKER).render({"backdrop": "beach", "audience": "  "})
    assert [item.placeholder for item in caught.value.findings] == ["geography", "audience"]


def test_a_condition_chooses_text_and_makes_its_name_optional() -> None:
    template = "sneaker{% if city %} in {{ city }}{% endif %}"
    assert not parse_prompt(template).placeholders[0].is_required
    assert render(template, city="Rome") == "sneaker in Rome"
    assert render(template) == "sneaker"


def test_a_name_printed_outside_its_condition_too_stays_required() -> None:
    parsed = parse_prompt("{{ city }}{% if city %} ({{ city }}){% endif %}")
    assert parsed.placeholders[0].is_required


@pytest.mark.parametrize(
    ("test", "market", "expected"),
    [
        ("market == 'US'", "US", "yes"),
        ("market != 'US'", "US", "no"),
        ("market in ['US', 'GB']", "GB", "yes"),
        ("market not in ('US', 'GB')", "GB", "no"),
        ("market in 'USA'", "US", "yes"),
        ("'U' in market", "US", "yes"),
        ("not market", "US", "no"),
        ("not market", " ", "yes"),
        ("market and market == 'GB'", "US", "no"),
        ("market == 'GB' or market == 'US'", "US", "yes"),
        ("true", "US", "yes"),
    ],
)
def test_conditions_compare_values_as_text(test: str, market: str, expected: str) -> None:
    template = f"{{% if {test} %}}yes{{% else %}}no{{% endif %}}"
    assert render(template, market=market) == expected


def test_the_first_branch_that_holds_is_taken() -> None:
    template = "{% if m == 'a' %}A{% elif m == 'b' %}B{% elif m %}C{% else %}D{% endif %}"
    assert [render(template, m=value) for value in ("a", "b", "c", "")] == ["A", "B", "C", "D"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ("lower", "new york city"),
        ("upper", "NEW YORK CITY"),
        ("title", "New York City"),
        ("capitalize", "New york city"),
        ("truncate(8)", "new…"),
        ("truncate(10)", "new york…"),
        ("truncate(13)", "new york City"),
        ("default('x')", "new york City"),
        ("upper|truncate(4)|lower", "new…"),
    ],
)
def test_filters_change_the_value(filters: str, expected: str) -> None:
    assert render(f"{{{{ city|{filters} }}}}", city="new york City") == expected


def test_a_default_stands_in_for_an_empty_value() -> None:
    template = "in {{ city|default('any city') }}"
    assert not parse_prompt(template).placeholders[0].is_required
    assert render(template) == "in any city"
    assert render(template, city="Rome") == "in Rome"


def test_comments_and_quoted_braces_are_plain() -> None:
    assert render("a{# note #}b {{ '{{' }}") == "ab {{"


def test_a_value_is_never_read_as_a_template() -> None:
    assert render("in {{ city }}", city="{{ 7 * 7 }}{% if x %}") == "in {{ 7 * 7 }}{% if x %}"


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab {}%#|'\"()[].,-*+~_\n=1é", max_size=80))
def test_any_text_is_either_refused_with_a_place_or_renders_with_true_spans(text: str) -> None:
    try:
        parsed = parse_prompt(text)
    except PromptError as error:
        lines = text.count("\n") + 1
        assert error.findings
        assert all(1 <= item.line <= lines and item.column >= 1 for item in error.findings)
        return
    rendered = parsed.render({item.name: "some value" for item in parsed.placeholders})
    assert all(rendered.text[start:end] == value for _, value, start, end in rendered.spans)
