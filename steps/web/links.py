"""The check that every link of the built site leads somewhere, in the site itself."""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

_LINK = re.compile(r"""<(?:a|link|img|script)\b[^>]*?\s(?:href|src)="([^"]*)\"""")
_ID = re.compile(r"""\bid="([^"]*)\"""")
_ELSEWHERE = re.compile(r"[a-z]+:|//")


def dead_links(folder: Path) -> list[str]:
    """A line for each link of a page whose file or anchor is not there."""

    @cache
    def anchors(path: Path) -> set[str]:
        return {unescape(each) for each in _ID.findall(path.read_text(encoding="utf-8"))}

    found = []
    for page in sorted(folder.rglob("*.html")):
        for link in sorted(set(_LINK.findall(page.read_text(encoding="utf-8")))):
            path, _, anchor = unquote(unescape(link)).partition("#")
            if _ELSEWHERE.match(path):
                continue
            target = (page.parent / path.partition("?")[0]).resolve() if path else page
            there = target.is_file()
            if there and anchor and target.suffix == ".html":
                there = anchor in anchors(target)
            if not there:
                found.append(f"{page.relative_to(folder)}: {link} leads nowhere")
    return found
