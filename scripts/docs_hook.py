"""For the documentation site: links to files of the repository that are no pages become plain text.

In the repository itself they are links, which is where the source is.
"""

import re
from pathlib import PurePosixPath
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs for every page."""
    folder = PurePosixPath(page.file.src_uri).parent

    def plain(link: "re.Match[str]") -> str:
        text, target = link.group(1), link.group(2)
        if "://" in target or target.startswith("mailto:"):
            return link.group(0)
        depth = 0
        for part in (folder / target).parts:
            depth += -1 if part == ".." else 1
            if depth < 0:
                return text
        return link.group(0) if target.endswith(".md") or "." not in target else text

    return _LINK.sub(plain, markdown)
