"""Plural rules of languages."""

import pytest

from knnmt.text.plurals import RULES, parsed_rule, usual_rule


def test_every_usual_rule_works() -> None:
    rules = {language: parsed_rule(text) for language, text in RULES.items()}
    assert all(rule is not None for rule in rules.values())
    assert usual_rule("pt-BR") != usual_rule("pt_PT")
    assert usual_rule("de-AT") is not None
    assert usual_rule("tlh") is None


@pytest.mark.parametrize(
    ("text", "forms"),
    [("nplurals=2; plural=(n != 1)", 2), ("nplurals=2; plural=n", None), ("nplurals=99; plural=0;", None),
     ("nplurals=2; plural=__import__('os')", None), ("plural=0", None), ("nplurals=3; plural=1/n;", None)],
)  # fmt: skip
def test_rules_of_strangers(text: str, forms: int | None) -> None:
    rule = parsed_rule(text)
    assert (None if rule is None else rule.forms) == forms
