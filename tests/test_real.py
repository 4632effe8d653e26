"""The package against the brute-force reference, on real models and real text.

Takes hours the first time. The reference's translations are kept under `~/.cache/knnmt-tests` (`KNNMT_TEST_CACHE`
names another folder) until the model, the text, the settings or `reference.py` changes, and an interrupted run goes
on where it stopped. Models and text are looked for in `../shared` (`KNNMT_SHARED` names another folder).
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import reference

from knnmt import Translator
from knnmt.models.batching import pad
from knnmt.translate.beam import longest_output
from knnmt.translate.translator import text_tokens

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("KNNMT_SHARED", ROOT.parent / "shared"))
CACHE = Path(os.environ.get("KNNMT_TEST_CACHE", Path.home() / ".cache" / "knnmt-tests"))
CHUNK = 100  # sentences between two saves of the reference's translations
TOLERANCE = 0.3  # BLEU
SETTINGS = reference.Settings(beam=5, k=16, temperature=10.0, weight=0.5)

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class Case:
    """One model with one domain's text; a limit of None takes every line."""

    model: str
    corpus: str
    source: str
    target: str
    train_limit: int | None = None
    test_limit: int | None = None
    settings: reference.Settings = SETTINGS

    def text(self, split: str, language: str) -> Path:
        plain = SHARED / "corpora" / self.corpus / f"{split}.{language}"
        return plain if plain.exists() else plain.with_name(plain.name + ".gz")

    def files(self) -> list[Path]:
        return [self.text(split, language) for split in ("train", "test") for language in (self.source, self.target)]


KORAN = Case("de-en-small", "koran", "de", "en")
IT = Case("opus-mt-zh-en", "it-zh", "zh", "en", train_limit=20_000, test_limit=200)
CASES = [pytest.param(KORAN, id="koran"), pytest.param(IT, id="it-zh")]


def model_folder(name: str) -> Path:
    """A stored model, or one that a tool of the same name makes once."""
    stored, tool, made = SHARED / "models" / name, SHARED / "tools" / name, CACHE / name
    if stored.exists():
        return stored
    if not tool.exists():
        pytest.skip(f"neither {stored} nor {tool} exists")
    made.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, tool, made], check=True)  # returns at once where the model is complete
    return made


def require_text(case: Case) -> None:
    for path in case.files():
        if not path.exists():
            pytest.skip(f"{path} does not exist")


def fingerprint(case: Case, model: Path) -> str:
    """Changes with everything that the reference's result depends on."""
    digest = hashlib.sha256(json.dumps(asdict(case)).encode())
    for path in [Path(reference.__file__), *sorted(model.glob("*.safetensors")), *case.files()]:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


class ReferenceRun:
    """The reference's result for a case: entries, and for `base` and `knn` BLEU, translations and seconds."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.model = model_folder(case.model)
        self.path = CACHE / f"reference-{case.corpus}-{fingerprint(case, self.model)}.json"
        new = {"case": asdict(case), "base": {}, "knn": {}}
        self.result: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else new

    def finish(self) -> dict[str, Any]:
        """Compute what is not stored yet; the datastore itself is never stored."""
        if "bleu" not in self.result["knn"]:
            system = reference.Reference(self.model)
            self.translate("base", system, reference.Settings(beam=self.case.settings.beam))
            self.translate("knn", system, self.case.settings, self.build(system))
        return self.result

    def build(self, system: reference.Reference) -> reference.Datastore:
        case, began = self.case, time.monotonic()
        sources = reference.read_lines(case.text("train", case.source), case.train_limit)
        targets = reference.read_lines(case.text("train", case.target), case.train_limit)
        store = system.build(sources, targets)
        self.result["build"] = {
            "pairs": len(sources),
            "skipped": store.skipped,
            "entries": len(store.values),
            "seconds": time.monotonic() - began,
        }
        return store

    def translate(
        self,
        name: str,
        system: reference.Reference,
        settings: reference.Settings,
        store: reference.Datastore | None = None,
    ) -> None:
        """Translate the test text, sentences of like length together, and score it."""
        case, part = self.case, self.result[name]
        sources = reference.read_lines(case.text("test", case.source), case.test_limit)
        targets = reference.read_lines(case.text("test", case.target), case.test_limit)
        translations = part.setdefault("translations", [None] * len(sources))
        missing = sorted((i for i, text in enumerate(translations) if text is None), key=lambda i: len(sources[i]))
        for first in range(0, len(missing), CHUNK):
            chunk, began = missing[first : first + CHUNK], time.monotonic()
            texts = system.translate([sources[i] for i in chunk], settings, store)
            for i, text in zip(chunk, texts, strict=True):
                translations[i] = text
            part["seconds"] = part.get("seconds", 0.0) + time.monotonic() - began
            self.save()
        part["bleu"] = reference.bleu(translations, targets)
        self.save()

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self.result, ensure_ascii=False, indent=1), encoding="utf-8")
        unfinished.replace(self.path)


def knnmt(*arguments: str | Path) -> str:
    """What the package's command line writes to standard output."""
    command = [sys.executable, "-m", "knnmt", *map(str, arguments)]
    return subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8").stdout


def limit(lines: int | None) -> list[str]:
    return [] if lines is None else ["--limit", str(lines)]


def text_options(case: Case, split: str) -> list[str | Path]:
    return ["--source", case.text(split, case.source), "--target", case.text(split, case.target)]


def package_result(case: Case, store: Path) -> dict[str, Any]:
    """What `knnmt evaluate --json` says of a store that `knnmt build` made."""
    languages = ["--source-lang", case.source, "--target-lang", case.target]
    training = [*text_options(case, "train"), *limit(case.train_limit)]
    knnmt("build", store, "--model", model_folder(case.model), *training, *languages, "--index", "Flat")
    settings = [f"--{name}={value}" for name, value in asdict(case.settings).items()]
    test = [*text_options(case, "test"), *limit(case.test_limit)]
    result: dict[str, Any] = json.loads(knnmt("evaluate", "--store", store, *test, *settings, "--exact", "--json"))
    return result


@pytest.mark.parametrize("case", CASES)
def test_reference_without_retrieval_equals_generate(case: Case) -> None:
    require_text(case)
    system = reference.Reference(model_folder(case.model))
    sentences = sorted(reference.read_lines(case.text("test", case.source), 40), key=len)
    batch = system.tokenizer(sentences, return_tensors="pt", padding=True)
    rows = system.model.generate(**batch, num_beams=5, max_length=system.max_length)[:, 1:].tolist()
    expected = [[token for token in row if token != system.pad] for row in rows]
    assert system.decode(sentences, reference.Settings(beam=5)) == expected


@pytest.mark.parametrize("corpus", ["it", "koran"])
def test_beam_search_gives_what_generate_gives(corpus: str) -> None:
    """On 500 sentences, token for token."""
    file = SHARED / "corpora" / corpus / "test.de"
    if not file.exists():
        pytest.skip(f"{file} does not exist")
    translator = Translator.from_model("builtin:de-en", exact=True)
    model = translator.translation_model
    texts = sorted([line for line in reference.read_lines(file, 600) if line.strip()][:500], key=len)
    different = []
    for first in range(0, len(texts), 32):
        some = texts[first : first + 32]
        ids, mask = pad(model.fitting_sources(some)[0], model.padding)
        longest = longest_output(model)
        rows = model.network.generate(input_ids=ids, attention_mask=mask, num_beams=5, max_length=longest)
        expected = [tuple(text_tokens(row, model)) for row in rows.tolist()]
        found = [translation.tokens for translation in translator.translations(some, batch_tokens=10**9)]
        different += [text for text, one, other in zip(some, expected, found, strict=True) if one != other]
    assert len(texts) == 500
    assert different == []


@pytest.mark.parametrize("case", CASES)
def test_package_agrees_with_reference(case: Case, tmp_path: Path) -> None:
    require_text(case)
    expected = ReferenceRun(case).finish()
    found = package_result(case, tmp_path / "store")
    for system in ("base", "knn"):
        assert found[system]["bleu"] == pytest.approx(expected[system]["bleu"], abs=TOLERANCE), system
