"""What the command line shows of a datastore. It imports neither models nor FAISS, so that it starts at once."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from knnmt.layout.manifest import SETTINGS
from knnmt.layout.records import MixingRecord
from knnmt.retrieval.lookup import Hit
from knnmt.store.datastore import Store


def store_facts(store: Store) -> dict[str, object]:
    """`knnmt info --json`."""
    manifest = store.manifest
    return {
        "path": str(store.path),
        "entries": store.live_entries,
        "segments": store.live_segments,
        "removed": {"entries": store.entries - store.live_entries, "segments": len(store.removed)},
        "dimension": manifest.model.dimension,
        "index": manifest.index.factory,
        "nprobe": manifest.index.nprobe,
        "recall": manifest.index.recall,
        "model": manifest.model.name,
        "model_type": manifest.model.type,
        "model_fingerprint": manifest.model.fingerprint,
        "key_site": manifest.model.key_site,
        "languages": [manifest.model.source_lang, manifest.model.target_lang],
        "corpora": manifest.corpora,
        "skipped": manifest.skipped,
        "downsampling": manifest.downsampling,
        "mixing": mixing_facts(manifest.mixing),
        "tuned": manifest.tuned,
        "parts": len(manifest.parts),
        "bytes": store.bytes,
        "created": manifest.created,
        "knnmt": manifest.knnmt,
        "version": manifest.version,
        "fingerprint": store.fingerprint,
    }


def count_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def show_store(store: Store, console: Console) -> None:
    manifest = store.manifest
    recall = manifest.index.recall
    probes = f", {manifest.index.nprobe} clusters searched" if manifest.index.nprobe else ""
    table = Table.grid(padding=(0, 2))
    rows = {
        "entries": f"{store.live_entries:,} of dimension {manifest.model.dimension}",
        "segments": f"{store.live_segments:,} from {', '.join(corpus['name'] for corpus in manifest.corpora)}",
        "removed": count_of(len(store.removed), "segment") if len(store.removed) else "nothing",
        "left out": ", ".join(f"{count:,} {reason}" for reason, count in manifest.skipped.items()) or "nothing",
        **({"capped": capped_line(manifest.downsampling)} if manifest.downsampling else {}),
        "model": f"{manifest.model.name} ({manifest.model.type}, {manifest.model.fingerprint})",
        "languages": f"{manifest.model.source_lang or '?'} → {manifest.model.target_lang or '?'}",
        "index": ", ".join(index.factory for index in manifest.indexes) + probes,
        "recall": recall_line(recall),
        "mixing": mixing_line(manifest.mixing),
        "tuned": tuned_line(manifest.tuned),
        "size": f"{store.bytes / 1e6:,.1f} MB in {count_of(len(manifest.parts), 'part')}",
        "made": f"{manifest.created} by knnmt {manifest.knnmt}",
        "version": f"{manifest.version}: {manifest.change} at {manifest.changed}",
    }
    for name, value in rows.items():
        table.add_row(Text(name, style="bold"), Text(value))
    console.print(table)


def recall_line(recall: dict[str, float]) -> str:
    if not recall["queries"]:
        return "1: every key is compared"
    return f"{recall['recall']:.3f} at k={recall['k']:g} on {recall['queries']:g} queries"


def capped_line(downsampling: dict[str, Any]) -> str:
    """`at most 100 (koran), 50 (it and law) entries of each target token: 7,000 left out`."""
    caps = [f"{text['cap']:,} ({' and '.join(text['corpora'])})" for text in downsampling.get("merged", [])]
    most = ", ".join(caps) or f"{downsampling['cap']:,}"
    return f"at most {most} entries of each target token: {downsampling['dropped']:,} left out"


def mixing_facts(mixing: MixingRecord | None) -> dict[str, Any] | None:
    if mixing is None:
        return None
    sizes = {name: file.bytes for name, file in mixing.files.items()}
    return {"kind": mixing.kind, "variance": mixing.variance, "files": sizes} | mixing.how


def mixing_line(mixing: MixingRecord | None) -> str:
    """`learned: log-likelihood per token -1.99 (fixed values -2.08, model alone -3.24); mean weight …`."""
    if mixing is None:
        return "built-in head"
    reached = mixing.how.get("likelihood")
    if not reached:
        return mixing.kind if mixing.kind == "paper" else "built-in head; the store is too small for its own"
    others = {"fixed values": reached["fixed"], "model alone": reached["model"]}
    own = others.pop("fixed values") if mixing.kind == "fixed" else reached["fitted"]
    beside = ", ".join(f"{name} {value:.2f}" for name, value in others.items())
    line = f"{mixing.kind}: log-likelihood per token {own:.2f} ({beside})"
    general = mixing.how.get("general_weight")
    told = "; no general text in this language, kept close to the built-in head"
    return line + (told if general is None else f"; mean weight on general text {general:.2f}")


def tuned_line(tuned: dict[str, Any] | None) -> str:
    """`k 16, temperature 30, weight 0.6: BLEU 31.20 on 500 sentences of dev.de, 2026-11-16`."""
    if not tuned:
        return "no"
    settings = ", ".join(f"{name} {tuned[name]:g}" for name in SETTINGS if name in tuned)
    settings = settings.removesuffix(", certain 1") or str(tuned.get("mixing", ""))
    how = tuned.get("how")
    if not how:
        return settings
    text = f" of {how['source']}" if "source" in how else ""
    return f"{settings}: BLEU {how['bleu']:.2f} on {how['sentences']:,} sentences{text}, {how['date'][:10]}"


def show_hits(hits: Sequence[Hit], text: str, console: Console) -> None:
    """Pairs that were found, each with its percentage and both sides."""
    if not hits:
        console.print(f"nothing like {text!r} is in the memory")
    for hit in hits:
        segment = hit.segment
        place = f"{segment.corpus}, segment {segment.segment}, {segment.created}"
        console.print(f"{hit.percent:5.1f} %  {'all' if hit.kind == 'whole' else 'part'} of the {hit.side}  ({place})")
        console.print(f"         {segment.source}")
        console.print(f"         {segment.target}")
