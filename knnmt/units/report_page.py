"""A report as one self-contained HTML file."""

from html import escape
from importlib import resources
from string import Template
from typing import Any


def report_page(report: dict[str, Any]) -> str:
    """The whole page."""
    template = resources.files("knnmt").joinpath("data", "report.html").read_text(encoding="utf-8")
    files = ", ".join(file["target"] for file in report["files"])
    return Template(template).substitute(
        title=escape(f"knnmt: {files}"),
        files="".join(map(file_item, report["files"])),
        totals=totals(report["totals"]),
        flags="".join(
            f"<tr><td>{escape(name)}</td><td>{count:,}</td></tr>" for name, count in report["totals"]["flags"].items()
        ),
        units="\n".join(unit(one) for one in report["doubtful"]) or "<p>Nothing is doubtful.</p>",
    )


def totals(found: dict[str, Any]) -> str:
    rows = [
        ("units", f"{found['units']:,}"),
        ("taken from the memory (exact matches)", f"{found['exact_matches']:,}"),
        ("translated", f"{found['machine']:,}"),
        ("of these, like a sentence of the memory (70 % or more)", f"{found['near_matches']:,}"),
        ("to look at", f"{found['doubtful']:,}"),
        ("mean probability of a token", number(found["mean_probability"])),
        ("share that came from the memory", percent(found["memory_share"])),
    ]
    return "".join(row(*one) for one in rows)


def row(name: str, value: str) -> str:
    return f"<tr><td>{name}</td><td>{value}</td></tr>"


def file_item(file: dict[str, Any]) -> str:
    count = file["units"]
    units = "finished by an earlier run, not part of this report" if count is None else f"{count:,} units"
    return f"<li>{escape(file['source'])} → {escape(file['target'])}: {units}</li>"


def unit(found: dict[str, Any]) -> str:
    """A doubtful unit."""
    why = " ".join(f"<b>{escape(reason)}</b>" for reason in found["why"])
    facts = [found["place"], f"log-probability {found['log_probability']:.2f} over {found['tokens']} tokens"]
    if found["memory_share"] is not None:
        facts.append(f"memory {percent(found['memory_share'])}")
    if found["match"] is not None:
        facts.append(f"nearest match {found['match']:.0f} %")
    return (
        f'<article><p class="why">{why}</p><p class="source" dir="auto">{escape(found["source"])}</p>'
        f'<p class="target" dir="auto">{escape(found["translation"])}</p>'
        f'<p class="facts">{escape(" · ".join(facts))}</p></article>'
    )


def number(value: float | None) -> str:
    return "not known" if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    return "not known" if value is None else f"{100 * value:.0f} %"
