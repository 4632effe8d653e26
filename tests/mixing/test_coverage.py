"""What a memory covers: shares of n-grams against sets in Python, growing and joining, and damaged files."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt import StoreError
from knnmt.mixing.coverage import ORDERS, Coverage

SENTENCES = st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=8)


def ngrams(sentence: list[int], order: int) -> list[tuple[int, ...]]:
    return [tuple(sentence[at : at + order]) for at in range(len(sentence) - order + 1)]


def by_sets(memory: list[list[int]], sentence: list[int]) -> list[float]:
    shares = []
    for order in ORDERS:
        known = {one for other in memory for one in ngrams(other, order)}
        found = ngrams(sentence, order)
        shares.append(sum(one in known for one in found) / len(found) if found else 0.0)
    return shares


def coverage_of(sentences: list[list[int]]) -> Coverage:
    coverage = Coverage()
    coverage.add(sentences)
    return coverage


@settings(max_examples=50, deadline=None)
@given(memory=SENTENCES, sentence=st.lists(st.integers(0, 9), max_size=8))
def test_shares_are_those_of_sets(memory: list[list[int]], sentence: list[int]) -> None:
    assert coverage_of(memory).shares(sentence) == pytest.approx(by_sets(memory, sentence))


@settings(max_examples=50, deadline=None)
@given(memory=SENTENCES.filter(bool))
def test_a_sentence_left_out_is_known_by_the_others_alone(memory: list[list[int]]) -> None:
    coverage = coverage_of(memory)
    expected = by_sets(memory[1:], memory[0])
    assert coverage.shares(memory[0], without_itself=True) == pytest.approx(expected)


@settings(max_examples=50, deadline=None)
@given(left=SENTENCES, right=SENTENCES)
def test_growing_and_joining_come_to_the_same(left: list[list[int]], right: list[list[int]]) -> None:
    grown = coverage_of(left)
    grown.add(right)
    joint = coverage_of(left).joined(coverage_of(right))
    assert grown == joint == Coverage.from_bytes(joint.to_bytes(), "file")


def test_a_damaged_file_is_named() -> None:
    content = coverage_of([[1, 2, 3]]).to_bytes()
    with pytest.raises(StoreError, match="coverage-000001"):
        Coverage.from_bytes(content[:-3], "coverage-000001.roaring")
