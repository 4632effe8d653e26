"""Documents: read as units, written again with their translations; all other bytes stay the same.

`kinds.open_document` returns a `document.Document`: `units()` yields what is to be translated, in the file's order,
and `write(results, out)` writes the file with one result for each unit. Other packages use these, the records of
`content` and `DocumentOptions`. Each call reads the file again, so a document can be larger than memory if its kind is
read line by line.

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

To add a kind, write a function that yields the file's pieces (`document.Piece`), and add a line to `kinds.KINDS`.
"""
