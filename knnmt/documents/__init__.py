"""Documents: read into units, written back with translations; everything else stays byte for byte.

`kinds.open_document` gives a `document.Document`: `units()` are what is to be translated, in the file's order, and
`write(results, out)` writes the file with one result for each unit. Neighbours ask for these, for the records of
`content` and for `DocumentOptions`. A document is read anew by each call, so it can be larger than memory where its
kind is read line by line.

| kind | module | in memory |
| --- | --- | --- |
| XLIFF 1.2, 2.0, 2.1 | `xliff` | the text of the file |
| PO, POT | `po` | an entry |
| CSV, TSV | `tables` | a row |
| JSONL | `jsonl` | a line |
| TXT | `plain` | a line, or a paragraph |
| HTML | `html` | the text of the file |
| Markdown | `markdown` | the file, parsed |
| SRT, VTT | `subtitles` | a cue |

A new kind is a function that gives the file's pieces (`document.Piece`), and a line in `kinds.KINDS`.
"""
