"""BLEU, chrF and speed of the base model and of retrieval on the same text, with signatures."""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from knnmt.errors import CorpusError, SettingsError
from knnmt.files import sha256_of, write_durably
from knnmt.progress import progress_bar
from knnmt.release import __version__
from knnmt.text.corpus import check_plain
from knnmt.text.inputs import check_readable, read_lines
from knnmt.text.languages import base_language
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import Translator

BOOTSTRAP_SAMPLES = 1000
TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one system, with its translations."""

    bleu: float
    chrf: float
    tokens_per_second: float | None  # unknown of translations that were made earlier
    translations: list[str]

    def to_json(self) -> dict[str, float | None]:
        return {"bleu": self.bleu, "chrf": self.chrf, "tokens_per_second": self.tokens_per_second}


@dataclass(frozen=True, slots=True)
class Mixed:
    """One of several ways to mix on the same text."""

    scores: Scores
    p_value: float  # of the difference from the model alone
    p_value_of_first: float | None  # of the difference from the first way; None for itself
    signature: str

    def to_json(self) -> dict[str, Any]:
        record = self.scores.to_json() | {"p_value": self.p_value, "p_value_of_first": self.p_value_of_first}
        return record | {"signature": self.signature}


@dataclass(frozen=True, slots=True)
class Evaluation:
    base: Scores
    knn: Scores | None
    sentences: int
    p_value: float | None
    signature: dict[str, str]
    mixing: dict[str, Mixed] | None = None  # by kind, where several were compared; `knn` is the first of them

    def to_json(self) -> dict[str, Any]:
        """The form of `knnmt evaluate --json`."""
        record = asdict(self)
        for name, scores in (("base", self.base), ("knn", self.knn)):
            record[name] = scores.to_json() if scores else None
        record["mixing"] = self.mixing and {kind: mixed.to_json() for kind, mixed in self.mixing.items()}
        return {name: value for name, value in record.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Earlier:
    """Earlier translations of the same text, by the base model or another system."""

    path: str
    checksum: str
    translations: list[str]

    def __str__(self) -> str:
        return f"file:{Path(self.path).name}@{self.checksum}"


def read_test_set(source: Path, target: Path, limit: int | None) -> tuple[list[str], list[str]]:
    """Sources and references, line by line; nothing is skipped, so that scores can be compared."""
    if limit is not None and limit < 1:
        raise SettingsError(f"--limit {limit}: must be at least 1")
    for path in (source, target):
        check_readable(path)
        check_plain(path)
    sources, references = list(read_lines(source)), list(read_lines(target))
    if len(sources) != len(references):
        raise CorpusError(
            f"{source} has {len(sources):,} lines but {target} has {len(references):,}; lines must be aligned"
        )
    if not sources:
        raise CorpusError(f"{source}: empty")
    return sources[:limit], references[:limit]


def read_earlier(path: Path, source: Path, limit: int | None) -> Earlier:
    """Earlier translations, one per line, for all source lines or for the first `limit`."""
    check_readable(path)
    check_plain(path)
    lines, count = list(read_lines(path)), sum(1 for _ in read_lines(source))
    if len(lines) not in (count, min(count, limit or count)):
        wanted = f", of which --limit takes {limit:,}" if limit and limit < count else ""
        raise CorpusError(f"{path} has {len(lines):,} lines but {source} has {count:,}{wanted}; lines must be aligned")
    return Earlier(str(path), sha256_of(path)[:12], lines[:limit])


def save(evaluation: Evaluation, folder: Path) -> None:
    """Write the translations of each system, in the form that `read_earlier` takes."""
    systems = {"base.txt": evaluation.base, "knn.txt": evaluation.knn}
    systems |= {f"{kind}.txt": mixed.scores for kind, mixed in (evaluation.mixing or {}).items()}
    for name, scores in systems.items():
        if scores:
            write_lines(folder / name, scores.translations)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    text = "".join(re.sub(r"[\r\n]+", " ", line) + "\n" for line in lines)
    write_durably(path, lambda file: file.write(text.encode()))


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    against: Earlier | None = None,
    show_progress: bool = False,
) -> Evaluation:
    """Score the base model (or earlier translations) and, if the translator has a store, retrieval."""
    if against and not translator.retriever:
        raise SettingsError(f"--against {against.path}: only with --store; there is nothing else to compare it with")
    bleu, chrf = metrics(translator, references)
    base = score_base(translator, sources, bleu, chrf, against, show_progress=show_progress)
    knn = None
    if translator.retriever:
        knn = score_system(translator, sources, bleu, chrf, label="kNN" if show_progress else "")
    p_value = paired_bootstrap(bleu, base, knn) if knn else None
    return Evaluation(base, knn, len(sources), p_value, signatures(translator, bleu, chrf, against))


def score_base(
    translator: Translator,
    sources: Sequence[str],
    bleu: BLEU,
    chrf: CHRF,
    against: Earlier | None,
    *,
    show_progress: bool = False,
) -> Scores:
    """The baseline: the model alone, or earlier translations."""
    if against:
        return score_texts(against.translations, bleu, chrf)
    return score_system(translator.base(), sources, bleu, chrf, label="base" if show_progress else "")


def signatures(translator: Translator, bleu: BLEU, chrf: CHRF, against: Earlier | None) -> dict[str, str]:
    return {
        "bleu": str(bleu.get_signature()),
        "chrf": str(chrf.get_signature()),
        "knnmt": signature_of(translator),
        **({"base": str(against)} if against else {}),
    }


def metrics(translator: Translator, references: Sequence[str]) -> tuple[BLEU, CHRF]:
    """Metrics with cached references and the tokenizer for the target language."""
    language = base_language(translator.translation_model.target_lang)
    tokenizer = TOKENIZERS.get(language, "13a")
    try:
        bleu = BLEU(tokenize=tokenizer, references=[list(references)])
    except (ImportError, RuntimeError) as error:
        extra = {"ja": "japanese", "ko": "korean"}.get(language, "")
        raise SettingsError(f"--target-lang {language}: scoring needs `pip install 'knnmt[{extra}]'`") from error
    return bleu, CHRF(references=[list(references)])


def score_system(translator: Translator, sources: Sequence[str], bleu: BLEU, chrf: CHRF, *, label: str = "") -> Scores:
    """Translate and score; with a label, a progress bar shows it."""
    began = time.perf_counter()
    with progress_bar(label, len(sources), show=bool(label)) as advance:
        translations = translator.translations(sources, advance=advance)
    seconds = time.perf_counter() - began
    tokens = sum({one.source: len(one.tokens) for one in translations}.values())  # what comes again is made once
    texts = [translation.text for translation in translations]
    return score_texts(texts, bleu, chrf, tokens_per_second=round(tokens / seconds, 1))


def score_texts(texts: list[str], bleu: BLEU, chrf: CHRF, *, tokens_per_second: float | None = None) -> Scores:
    return Scores(
        round(bleu.corpus_score(texts, None).score, 2),
        round(chrf.corpus_score(texts, None).score, 2),
        tokens_per_second,
        texts,
    )


def paired_bootstrap(bleu: BLEU, base: Scores, knn: Scores) -> float:
    """The p-value of the BLEU difference, by paired bootstrap."""
    systems: list[tuple[str, Sequence[str]]] = [("base", base.translations), ("knn", knn.translations)]
    if len({bleu.corpus_score(list(texts), None).score for _, texts in systems}) == 1:
        return 1.0  # sacreBLEU would count no resampled difference as larger than none, and report the least p
    test = PairedTest(systems, {"BLEU": bleu}, None, test_type="bs", n_samples=BOOTSTRAP_SAMPLES)
    result = test()[1]["BLEU"][1]
    if isinstance(result, str) or result.p_value is None:
        raise TypeError("sacreBLEU gave no p-value")
    return round(float(result.p_value), 6)


def signature_of(translator: Translator) -> str:
    """Everything that the number depends on."""
    model = f"{Path(translator.translation_model.name).name}@{translator.translation_model.fingerprint}"
    beam, mixer = translator.settings.beam, translator.mixer
    if not translator.retriever or not mixer:
        return f"model:{model}|beam:{beam}{precision_of(translator.settings)}|v:{__version__}"
    memory = dict(translator.retriever.signature)
    index = memory.pop("index")
    stores = "|".join(f"{name}:{value}" for name, value in memory.items())
    return (
        f"model:{model}|{stores}|{mixer.signature}"
        f"|beam:{beam}|index:{index}{other_source(translator)}"
        f"{shortcuts(translator.settings)}{precision_of(translator.settings)}|v:{__version__}"
    )


def shortcuts(settings: TranslateSettings) -> str:
    """Signature parts for non-default speed settings."""
    if settings.exact:
        return "|exact"
    return f"|certain:{settings.certain:g}" if settings.certain is not None and settings.certain < 1 else ""


def precision_of(settings: TranslateSettings) -> str:
    """The precision of the model's products, if it is not float32."""
    return f"|precision:{settings.precision}" if settings.precision not in (None, "float32") else ""


def other_source(translator: Translator) -> str:
    """The source language, if it differs from the store's."""
    language, stores = translator.translation_model.source_lang, translator.stores
    return "" if not stores or language == stores[0].manifest.model.source_lang else f"|source:{language}"
