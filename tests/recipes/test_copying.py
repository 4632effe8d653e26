"""Pairs that teach a model to copy, and how much it copied."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Tom wohnt in Rom.", "Tom lives in Rome.", ["Tom"]),
        ("Seite 12 von 30", "Page 12 of 30", ["12", "30"]),
        ("Tom sah Tom.", "Tom saw Tom.", []),
        ("ein Hund", "a dog", []),
    ],
)
def test_what_both_sides_share(recipe: SimpleNamespace, source: str, target: str, expected: list[str]) -> None:
    assert recipe.copying.anchors(source, target) == expected


def test_pairs_to_copy(recipe: SimpleNamespace) -> None:
    """Both sides get the same, and the seed decides what."""
    pairs = [("Tom wohnt in Rom.", "Tom lives in Rome.")] * 450
    made = list(recipe.copying.augmented(pairs, seed=1, longest=100))
    assert made == list(recipe.copying.augmented(pairs, seed=1, longest=100))
    assert made != list(recipe.copying.augmented(pairs, seed=2, longest=100))
    bare = [pair for pair in made if pair[0] == pair[1]]
    lists = [pair for pair in made if " wohnt " not in pair[0] and pair[0] != pair[1]]
    assert len(made) - len(bare) - len(lists) == 450
    assert bare
    joined = [pair for pair in made if pair[0].count(" wohnt in Rom.") == 2]
    assert joined
    assert all(target.count(" lives in Rome.") == 2 for _, target in joined)
    plain = [(source, target) for source, target in made if "Tom" not in source and target.endswith(" lives in Rome.")]
    copied = [
        (source.removesuffix(" wohnt in Rom."), target.removesuffix(" lives in Rome.")) for source, target in plain
    ]
    same = [source for source, target in copied if source == target]
    assert len(same) > 150
    assert {sign for sign in "${}<>&=#%@_/|" if any(sign in text for text in same)} == set("${}<>&=#%@_/|")


def test_lists_of_things(recipe: SimpleNamespace) -> None:
    """Only the words around the things are translated."""
    choose = recipe.copying.Chooser(1)
    made = [recipe.copying.listed(choose) for _ in range(200)]
    assert {source.split()[-2] for source, _ in made} >= {"und", "oder"}
    for source, target in made:
        first, joint, last = re.split(" (und|oder) ", source)
        lead = next((words for words in recipe.copying.LEADS if words[0] and first.startswith(words[0])), ("", ""))
        english = {"und": "and", "oder": "or"}[joint]
        assert target == f"{lead[1]}{first.removeprefix(lead[0])} {english} {last}"


def test_things_are_made_of_words_of_the_text(recipe: SimpleNamespace) -> None:
    """Else a model translates such words wherever they stand."""
    words = [f"wort{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(600)]
    lexicon = recipe.copying.lexicon_of(" ".join(words[: 600 - rank]) for rank in range(600))
    assert lexicon == tuple(words[200:])
    pairs = [("Tom wohnt in Rom.", "Tom lives in Rome.")] * 300
    made = recipe.copying.augmented(pairs, seed=1, longest=100, lexicon=lexicon)
    assert any(word in source for source, _ in made for word in words[200:])


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("Datei %1 in ${ordner} fehlt", "File %1 in ${ordner} is missing", (2, 2)),
        ("%s und %s", "%s", (1, 2)),
        ("& kde; mit --help", "& kde; with --hilfe", (1, 2)),
        ('<x id="1"/> in /usr/lib/x', '<x id="2"/> in /usr/lib/x', (1, 2)),
        ("siehe http://a.org/b", "see http://a.org/b.", (1, 1)),
        ("in /usr/lib/x", "in /usr/lib/x.", (1, 1)),
    ],
)
def test_what_was_kept(recipe: SimpleNamespace, source: str, translation: str, expected: tuple[int, int]) -> None:
    assert recipe.measure.count_kept([source], [translation]) == expected


def test_text_is_written_into_a_folder_that_does_not_exist_yet(recipe: SimpleNamespace, tmp_path: Path) -> None:
    recipe.copying.write_lines(tmp_path / "text" / "copy.source", ["a", "b"])
    assert (tmp_path / "text" / "copy.source").read_text() == "a\nb\n"
