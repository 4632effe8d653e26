"""Scripts: which of them put spaces between words."""

# First and last characters of scripts that put no spaces between words; there, a token stands for a word.
SPACELESS = (
    ("\u0e00", "\u0eff"),  # Thai, Lao
    ("\u1000", "\u109f"),  # Burmese
    ("\u1780", "\u17ff"),  # Khmer
    ("\u3000", "\u30ff"),  # Chinese and Japanese punctuation, kana
    ("\u3400", "\u9fff"),  # Chinese characters
    ("\uf900", "\ufaff"),
    ("\uff00", "\uffef"),  # full-width forms
    ("\U00020000", "\U0003ffff"),
)

SPACE_AFTER = ".!?…:;,"  # marks with a space before the word that follows, even if a tag stands between


def is_spaceless(character: str) -> bool:
    """Whether a character is of a script that puts no spaces between words."""
    return character >= SPACELESS[0][0] and any(first <= character <= last for first, last in SPACELESS)
