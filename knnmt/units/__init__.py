"""What is done to a unit of a document around its translation: words, tags, placeholders, sentences, doubts.

Nothing here runs a model. `flat.flattened` makes words and gaps of a unit's content; `sentences` splits them;
`protected` finds what must be repeated, masks it and puts it back; `links` turns a network's attention into links
between words, and `placing.placed` returns tags to where they belong; `doubts` says what a person should look at.
"""
