"""What happens to a unit of a document before and after its translation: words, tags, placeholders, sentences, doubts.

Nothing here runs a model. `flat.flattened` splits the content of a unit into words and gaps, `sentences` splits it into
sentences. `protected` finds placeholders, masks them and puts them back. `links` turns a network's attention into links
between words, and `placing.placed` uses them to put tags back. `doubts` lists what a person should check.
"""
