"""Compares several mixing methods on the same text: each with the base model and with the first method."""

from collections.abc import Iterable, Sequence

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from knnmt.errors import SettingsError
from knnmt.measure.evaluation import (
    Earlier,
    Evaluation,
    Mixed,
    Scores,
    metrics,
    paired_bootstrap,
    score_base,
    score_system,
    signature_of,
    signatures,
)
from knnmt.measure.fitting import ComparedMixers
from knnmt.translate.settings import KINDS
from knnmt.translate.translator import Translator


def kinds_of(text: str) -> list[str]:
    """`robust,adaptive` as a list."""
    kinds = list(dict.fromkeys(kind.strip() for kind in text.split(",")))
    for kind in kinds:
        if kind not in KINDS:
            raise SettingsError(f"--mixing {kind}: must be one of {', '.join(KINDS)}")
    return kinds


def compare(
    translator: Translator,
    fitter: ComparedMixers,
    kinds: Sequence[str],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    against: Earlier | None = None,
    show_progress: bool = False,
) -> Evaluation:
    """Score the model alone and each way to mix. A head that the store lacks is fitted first, and not kept."""
    bleu, chrf = metrics(translator, references)
    base = score_base(translator, sources, bleu, chrf, against, show_progress=show_progress)
    mixed: dict[str, Mixed] = {}
    for kind, one in translators(translator, fitter, kinds):
        label = kind if show_progress else ""
        mixed[kind] = beside(one, sources, bleu, chrf, base, next(iter(mixed.values()), None), label=label)
    first = mixed[kinds[0]]
    signature = signatures(translator, bleu, chrf, against) | {"knnmt": first.signature}
    return Evaluation(base, first.scores, len(sources), first.p_value, signature, mixed)


def translators(
    translator: Translator, fitter: ComparedMixers, kinds: Iterable[str]
) -> Iterable[tuple[str, Translator]]:
    model, retriever, settings = translator.translation_model, translator.retriever, translator.settings
    for kind in kinds:
        yield kind, Translator(model, retriever, settings, fitter.mixer(kind))


def beside(
    translator: Translator,
    sources: Sequence[str],
    bleu: BLEU,
    chrf: CHRF,
    base: Scores,
    first: Mixed | None,
    *,
    label: str,
) -> Mixed:
    scores = score_system(translator, sources, bleu, chrf, label=label)
    p_value_of_first = paired_bootstrap(bleu, first.scores, scores) if first else None
    return Mixed(scores, paired_bootstrap(bleu, base, scores), p_value_of_first, signature_of(translator))
