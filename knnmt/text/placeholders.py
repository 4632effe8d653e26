"""Finds what a translation must repeat unchanged: placeholders, tags, entities, addresses."""

import re
from collections import Counter

PLACEHOLDER = re.compile(
    r"""
      (?:https?|ftps?|file)://[^\s<>"'“”«»]*[^\s<>"'“”«».,;:!?()\[\]]   # https://example.org/a?b=c
    | (?<![\w.])www\.[\w-]+(?:\.[\w-]+)+(?:/[^\s<>"']*[^\s<>"'.,;:!?()\[\]{}])?   # www.example.org/a
    | (?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+            # name@example.org
    | \[X\d+X\]                                             # [X10X]
    | \{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}   # {n, plural, …}
    | %[-+\#0]*<\w+>[-+\#0]*\d*(?:\.\d+)?[a-zA-Z]          # %<name>s
    | </?(?:[A-Za-z][\w:.-]*(?:\s[^<>]*)?|\d+)/?>            # <x id="1"/>, <g id="1">, </g>, <br>, <0>
    | &(?:[A-Za-z]\w*|\#\d+|\#[xX][0-9A-Fa-f]+);             # &amp;, &#228;, &#xE4;
    | \$?\{\{[^{}]+\}\}                                      # {{name}}
    | \{%[^{}%]*%\} | <[%?].{0,200}?[%?]>                    # {% if x %}, <%= x %>, <?php x ?>
    | [$%\#]\{[^{}\s]+\}                                     # ${var}, %{var}, #{var}
    | \$\([\w.-]+\)                                          # $(var)
    | (?<![\w$])\$[A-Za-z_]\w*\$?                           # $HOME, $NAME$
    | (?<![\w%])%[A-Za-z][\w.]+%(?!\w)                       # %name%, as Twig and Windows write it
    | (?<![\w-])--[A-Za-z][\w-]*                             # --option
    | \{[\w.\[\]-]*(?:[!:,][^{}]*)?\}                        # {0}, {name}, {}, {0:.2f}, {count, number}
    | %%
    | %\d+\$[-+\#0]*[\d*]*(?:\.[\d*]+)?[hlLqjzt]{0,2}[@a-zA-Z]   # %1$s
    | %\([^()\s]+\)[-+\#0]*\d*(?:\.\d+)?[a-zA-Z]             # %(name)s
    | %L?(?:\d{1,2}|n)(?![\d$a-zA-Z]|\.\d)                   # %1, %n, as Qt writes them
    | (?<!\d)%[-+\#0]*[\d*]*(?:\.[\d*]+)?[hlLqjzt]{0,2}[@diouxXeEfFgGcCsSpaA]   # %s, %5.2f, but not 100%ig
    """,
    re.VERBOSE,
)


def placeholders(text: str) -> list[str]:
    """The placeholders of a text, in order, with repetitions."""
    return PLACEHOLDER.findall(text)


def missing(source: str, translation: str) -> list[str]:
    """The placeholders of the source that the translation has not, or has too few of, in the source's order."""
    left = Counter(placeholders(translation))
    lacking = []
    for placeholder in placeholders(source):
        if left[placeholder]:
            left[placeholder] -= 1
        else:
            lacking.append(placeholder)
    return lacking
