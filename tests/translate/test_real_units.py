"""Tags and placeholders of a thousand units with real models: each exactly once."""

import random
from pathlib import Path

import pytest
from generated_units import faults, marked_up, write_xliff
from test_real import SHARED, model_folder

from knnmt import Translator

pytestmark = pytest.mark.real
UNITS = 1_000


@pytest.mark.parametrize(
    ("model", "corpus", "languages"),
    [
        ("builtin:de-en", "it/gettext-test.de", ("de", "en")),
        ("opus-mt-en-fr", "it-multiway/test.en", ("en", "fr")),
    ],
)
def test_every_tag_and_placeholder_is_there_once(
    model: str, corpus: str, languages: tuple[str, str], tmp_path: Path
) -> None:
    text = SHARED / "corpora" / corpus
    if not text.exists():
        pytest.skip(f"{text} does not exist")
    name = model if model.startswith("builtin:") else str(model_folder(model))
    chance = random.Random(1)
    lines = [line for line in text.read_text(encoding="utf-8").splitlines() if 4 <= len(line.split()) <= 16]
    sources = [marked_up(chance.choice(lines), chance) for _ in range(UNITS)]
    write_xliff(tmp_path / "in.xlf", sources, languages)
    translator = Translator.from_model(name, source_lang=languages[0], target_lang=languages[1])
    report = translator.translate_document(tmp_path / "in.xlf", tmp_path / "out.xlf")
    assert report.units == UNITS
    assert faults(tmp_path / "out.xlf") == []
