"""The kinds of documents, by file ending."""

from collections.abc import Callable
from pathlib import Path

from knnmt.documents.document import Document, DocumentOptions
from knnmt.documents.html import open_html
from knnmt.documents.jsonl import open_jsonl
from knnmt.documents.markdown import open_markdown
from knnmt.documents.plain import open_plain
from knnmt.documents.po import open_po
from knnmt.documents.subtitles import open_subtitles
from knnmt.documents.tables import open_table
from knnmt.documents.xliff import open_xliff
from knnmt.errors import DocumentError
from knnmt.text.inputs import check_readable, ending_of

Opener = Callable[[Path, DocumentOptions], Document]

KINDS: dict[str, Opener] = {
    ".xlf": open_xliff,
    ".xliff": open_xliff,
    ".po": open_po,
    ".pot": open_po,
    ".csv": open_table,
    ".tsv": open_table,
    ".jsonl": open_jsonl,
    ".txt": open_plain,
    ".html": open_html,
    ".htm": open_html,
    ".md": open_markdown,
    ".markdown": open_markdown,
    ".srt": open_subtitles,
    ".vtt": open_subtitles,
}


# Endings of one kind and one way of writing it: a template `.pot` becomes a `.po`.
SAME = (
    frozenset({".xlf", ".xliff"}),
    frozenset({".po", ".pot"}),
    frozenset({".html", ".htm"}),
    frozenset({".md", ".markdown"}),
)


def is_same_kind(source: Path, target: Path) -> bool:
    """Whether a document can be written under a name without becoming something else."""
    endings = {ending_of(source), ending_of(target)}
    return len(endings) == 1 or any(endings <= same for same in SAME)


def open_document(path: Path, *, options: DocumentOptions | None = None) -> Document:
    """The document at `path`, unpacked where its name ends in .gz."""
    check_readable(path)
    return opener_for(path)(path, options or DocumentOptions())


def opener_for(path: Path) -> Opener:
    ending = ending_of(path)
    if ending not in KINDS:
        raise DocumentError(f"{path}: documents of the ending {ending!r} are not known; known: {', '.join(KINDS)}")
    return KINDS[ending]
