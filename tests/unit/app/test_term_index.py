"""Blocked terms are found as whole words in any spelling, and nowhere else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services.term_index import Term, TermIndex, fold, has_word

WORDS = st.text("abcdé", min_size=1, max_size=3)


def found(text: str, *terms: str) -> list[str]:
    return [term.text for term in TermIndex(Term(text=term) for term in terms).find(text)]


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("Nike", "a NIKE shoe"),
        ("Nike", "“nike”, on a beach"),
        ("Nike", "the nike-like sole"),
        ("Nike", "nike_shoe"),
        ("Nike", "ＮＩＫＥ shoes"),
        ("Nike", "Ni\u200bke shoes"),
        ("Nestle", "NESTLÉ bars"),
        ("Nestlé", "nestle bars"),
        ("Nestlé", "Nestle\u0301 bars"),
        ("Strasse", "die STRAßE"),
        ("Łódź", "in lodz at night"),
        ("New  York", "new\u00a0\n york at dawn"),
        ("H&M", "an h&m bag"),
        ("C++", "written in C++, mostly"),
        ("@brand", "by @Brand."),
        ("耐克", "他穿耐克鞋"),
        ("Nike", "穿nike鞋"),
        ("나이키", "나이키는 신발"),
        ("ナイキ", "青いナイキの靴"),
        ("किताब", "एक किताब है"),
        ("Ωmega", "ωMEGA watch"),
    ],
)
def test_a_term_is_found_in_other_spellings(term: str, text: str) -> None:
    assert found(text, term) == [term]


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("Nike", "a niked shoe"),
        ("Nike", "unnike"),
        ("ass", "a glass of classic wine"),
        ("C++", "vitamin C"),
        ("New York", "new yorker"),
        ("New York", "york is new"),
        ("H&M", "h m"),
        ("कि", "किताब"),
        ("ナイキ", "ナイキスト線図"),
        ("Nike", ""),
    ],
)
def test_a_part_of_a_word_is_not_the_term(term: str, text: str) -> None:
    assert found(text, term) == []


def test_each_term_is_named_once_in_the_order_of_the_text() -> None:
    text = "Puma beside nike, and puma again in New York"
    assert found(text, "nike", "new york", "puma", "york", "adidas") == [
        "puma",
        "nike",
        "new york",
        "york",
    ]


def test_terms_that_begin_alike_are_told_apart() -> None:
    assert found("red bull", "red bull", "red cross", "red") == ["red bull", "red"]


def test_what_has_no_letter_is_no_term() -> None:
    assert not has_word("!? —")
    assert has_word("™ 3")
    with pytest.raises(ValueError, match="no letter"):
        TermIndex([Term(text="…")])


def test_no_term_blocks_nothing() -> None:
    assert not TermIndex([])
    assert TermIndex([]).find("anything") == []


def test_a_term_says_why_it_is_blocked() -> None:
    assert str(Term(text="Nike", reason="competitor name")) == "“Nike” (competitor name)"
    assert str(Term(text="Nike")) == "“Nike”"


@given(
    terms=st.lists(st.lists(WORDS, min_size=1, max_size=3).map(" ".join), max_size=8),
    text=st.text("abcdé -.", max_size=30),
)
def test_the_index_finds_what_a_search_term_by_term_finds(terms: list[str], text: str) -> None:
    index = TermIndex(Term(text=term) for term in terms)
    expected = {
        term for term in terms if re.search(rf"(?<!\w){re.escape(fold(term))}(?!\w)", fold(text))
    }
    assert {term.text for term in index.find(text)} == expected


@given(st.text(max_size=40))
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(st.text(min_size=1, max_size=20).filter(has_word))
def test_every_term_is_found_in_itself(text: str) -> None:
    assert found(text, text) == [text]
