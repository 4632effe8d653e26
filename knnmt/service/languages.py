"""Languages as clients write them: codes, names, and detection of a text's language."""

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from knnmt.text.languages import NLLB_NAMES, base_language, normal_code, same_language

NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali",
    "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian",
    "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "kn": "Kannada", "ko": "Korean",
    "ky": "Kyrgyz", "lb": "Luxembourgish", "lo": "Lao", "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian",
    "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "my": "Burmese",
    "nb": "Norwegian Bokmål", "ne": "Nepali", "nl": "Dutch", "nn": "Norwegian Nynorsk", "no": "Norwegian",
    "pa": "Punjabi", "pl": "Polish", "ps": "Pashto", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "si": "Sinhala", "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish",
    "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian",
    "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese", "xh": "Xhosa", "zh": "Chinese", "zu": "Zulu",
}  # fmt: skip
UNKNOWN = "und"
DETECTED_FROM = 2_000  # characters of a text that detection looks at

_DETECTING = threading.Lock()


def short_code(code: str | None) -> str:
    """What a client is shown: `de` for a model's `de_DE` or `deu_Latn`; `und` where a model does not say."""
    return base_language(code) or UNKNOWN


def language_name(code: str) -> str:
    return NAMES.get(base_language(code), code)


def distance(wanted: str, code: str) -> int | None:
    """From a code as a client writes it to a model's: 0 the same, 1 one with a region, 2 another region; None: another
    language. `zh-TW` is `zho_Hant`.
    """
    if normal_code(wanted) == normal_code(code) or with_script(wanted) == with_script(code):
        return 0
    if same_language(code, wanted):
        return 1
    return 2 if base_language(code) == base_language(wanted) else None


def with_script(code: str) -> str:
    return normal_code(NLLB_NAMES.get(code.replace("-", "_").lower(), code))


@cache
def identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def detect(text: str, among: Sequence[str] | None = None) -> list[tuple[str, float]]:
    """Languages that the text may be in, likeliest first, each with its probability; `among` leaves no others.

    The probability is that among all languages: an English text sent to a German model is hardly German.
    """
    with _DETECTING:  # the identifier keeps what it is restricted to
        ranked = [(str(code), float(share)) for code, share in identifier().rank(text[:DETECTED_FROM])]
    if among is not None:
        wanted = {base_language(code) for code in among}
        ranked = [(code, share) for code, share in ranked if code in wanted]
    return ranked
