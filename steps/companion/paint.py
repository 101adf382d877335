"""Colour in a terminal, and only there."""

import os
import sys

_CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36, "bold": 1, "faint": 2}


def enabled(stream=None) -> bool:
    """Colour goes to a terminal, unless NO_COLOR is set (https://no-color.org) or it has none."""
    stream = stream or sys.stdout
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def paint(text: str, *styles: str, on: bool | None = None) -> str:
    if not (enabled() if on is None else on) or not text or not styles:
        return text
    return "".join(f"\033[{_CODES[style]}m" for style in styles) + text + "\033[0m"
