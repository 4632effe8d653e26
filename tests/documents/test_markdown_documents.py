"""Markdown, translated."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rewriting import identity, opened, rewritten, sources, texts

from knnmt.documents.content import Tag, UnitResult

MARKDOWN = [
    ("eins\n\nzwei\n", ["eins", "zwei"], "EINS\n\nZWEI\n"),
    ("eins\nzwei\r\n", ["eins zwei"], "EINS ZWEI\r\n"),
    ("# eins\n\n## zwei ##\n\ndrei\n====\n", ["eins", "zwei", "drei"], "# EINS\n\n## ZWEI ##\n\nDREI\n====\n"),
    ("- eins\n- zwei\n  weiter\n\n  1) drei\n", ["eins", "zwei weiter", "drei"], "- EINS\n- ZWEI WEITER\n\n  1) DREI\n"),
    ("> eins\n> zwei\n\n> > drei\n", ["eins zwei", "drei"], "> EINS ZWEI\n\n> > DREI\n"),
    ("> eins  \n> zwei\\\n> drei", ["einszweidrei"], "> EINS  \n> ZWEI\\\n> DREI"),
    ("- [ ] eins\n- [x] zwei\n", [" eins", " zwei"], "- [ ] EINS\n- [x] ZWEI\n"),
    # inline
    ("a **b _c_** ~~d~~ `e` \\* &amp; f\n", ["a b c d  * & f"], "A **B _C_** ~~D~~ `e` \\* & F\n"),
    ('[a](b "c") ![d](e)', ["a ", "c", "d"], '[A](b "C") ![D](e)'),
    ("[a][b] [c][] [d]\n\n[b]: x\n[c]: y\n[d]: z\n", ["a c d"], "[A][b] [C][c] [D][d]\n\n[b]: x\n[c]: y\n[d]: z\n"),
    ("<https://a.b> a <b>c</b><br> d_e_f x[^1]\n\n[^1]: note one\n", [" a c d_e_f x", " note one"],
     "<https://a.b> A <b>C</b><br> D_E_F X[^1]\n\n[^1]: NOTE ONE\n"),
    ("**a** b\n\n*c*\n\n~~d~~ e\n", ["a b", "c", "d e"], "**A** B\n\n*C*\n\n~~D~~ E\n"),
    # tables
    ("| a | b |\n|---|:-:|\n| c \\| d | `x\\|y` z |\n", ["a", "b", "c | d", " z"], "| A | B |\n|---|:-:|\n| C \\| D | `x\\|y` Z |\n"),
    ("a | a\n--|--\na | a\n", ["a", "a", "a", "a"], "A | A\n--|--\nA | A\n"),
    # left alone
    ("---\ntitle: a\n---\nb\n", ["b"], "---\ntitle: a\n---\nB\n"),
    ("\ufeff+++\na = 1\n+++\nb\n", ["b"], "\ufeff+++\na = 1\n+++\nB\n"),
    ("```py\na\n```\n\n    b\n\n~~~\nc", [], "```py\na\n```\n\n    b\n\n~~~\nc"),
    ("<div>\n<p>a <code>b</code></p>\n</div>\n\nc\n", ["a ", "c"], "<div>\n<p>A <code>b</code></p>\n</div>\n\nC\n"),
    ("<!-- a -->\n\n---\n\n***\n", [], "<!-- a -->\n\n---\n\n***\n"),
    # dialects
    ("x[^1] y[^2].\n\n[^1]: word\n[^2]: two words\n", ["x y.", " word", " two words"],
     "X[^1] Y[^2].\n\n[^1]: WORD\n[^2]: TWO WORDS\n"),
    ("a\n: b\n:   c\nd\n", ["a", "b", "c d"], "A\n: B\n:   C D\n"),
    (":::note Title\na\n:::\n\n!!! tip\n    b\n", ["a", "b"], ":::note Title\nA\n:::\n\n!!! tip\n    B\n"),
    ("a\n$$\nx = 1\n$$\nb\n\n$$ y $$\n", ["a", "b"], "A\n$$\nx = 1\n$$\nB\n\n$$ y $$\n"),
    ("{{< note >}}\na {{< ref b >}} c\n{{< /note >}}\n\n{% if x %}\nd\n", ["a  c", "d"],
     "{{< note >}}\nA {{< ref b >}} C\n{{< /note >}}\n\n{% if x %}\nD\n"),
    ("a! b: c? :::d\n", ["a! b: c? :::d"], "A! B: C? :::D\n"),
    ("", [], ""),
]  # fmt: skip


@pytest.mark.parametrize(("document", "units", "expected"), MARKDOWN)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_markdown(tmp_path: Path, document: str, units: list[str], expected: str, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-le" and not document.startswith("\ufeff") else ""
    file = opened(tmp_path, "a.md", (mark + document).encode(encoding))
    assert texts(file) == units
    assert rewritten(file).decode(encoding) == mark + expected


def test_tags_are_pairs(tmp_path: Path) -> None:
    (content,) = sources(opened(tmp_path, "a.md", "**a [b](c)**"))
    found = [(piece.markup, piece.kind, piece.pair) for piece in content if isinstance(piece, Tag)]
    assert found == [("**", "open", 2), ("[", "open", 1), ("](c)", "close", 1), ("**", "close", 2)]


FRAMES = [
    "{}\n",
    "# {}\n",
    "- {}\n",
    "> {}\n",
    "| {} | b |\n|---|---|\n",
    "[{}](x)\n",
    "![{}](x)\n",
    'a [b](x "{}")\n',
    "{}\n===\n",
]
NASTY = st.text(st.sampled_from("ab *_`[]()<>!#+-|~=\\&;.1:\"'\t"), min_size=1, max_size=10).map(str.strip).filter(bool)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FRAMES), NASTY)
@example("{}\n", "1. a")
@example("{}\n", "&amp; <b>")
@example("![{}](x)\n", "1&#1")
@example('a [b](x "{}")\n', "a &amp; b")
@example("![{}](x)\n", "&amp;")
def test_a_translation_makes_no_markup(tmp_path: Path, frame: str, nasty: str) -> None:
    """What was written is read again as the same text, in the same structure."""
    document = opened(tmp_path, "a.md", frame.format("wort"))
    place = texts(document).index("wort")
    results = [
        UnitResult((nasty,)) if at == place else UnitResult(unit.source) for at, unit in enumerate(document.units())
    ]
    written = rewritten(document, lambda unit: results[unit.number - 1])
    again = opened(tmp_path, "b.md", written)
    assert [" ".join(text.split()) for text in texts(again)][place] == " ".join(nasty.split()), written
    assert len(texts(again)) == len(results)


PIECES = [
    "# ",
    "- ",
    "> ",
    "  ",
    "\n",
    "\n\n",
    "\r\n",
    "a",
    "*b*",
    "**",
    "`c`",
    "[d](e)",
    "![",
    "](",
    ")",
    "|",
    "---",
    "\\",
    "<b>",
    "&lt;",
    "```",
    "1. ",
    "\t",
    "[^1]",
    "==",
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=16).map("".join))
def test_the_identity_changes_nothing(tmp_path: Path, document: str) -> None:
    assert rewritten(opened(tmp_path, "a.markdown", document), identity).decode() == document
