"""Pages of the repository that stand outside `docs/` are pages of the site, too, below `repository/`.

Links stay those of the repository, so that every page can also be read as a file: the ones that lead out of `docs/`,
or into it, are turned here.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "examples/*")
_PLACE = "repository/"
_WIDE = re.compile(r"^\|(?:\s*:?-+:?\s*\|){6,}\s*$", re.MULTILINE)  # a table of six columns or more
_LINK = re.compile(r"(?<=\]\()([^)#:\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside `docs/`."""
    root = Path(config.config_file_path).parent
    for path in (path for pattern in _OUTSIDE for path in sorted(root.glob(pattern)) if path.is_file()):
        name = _PLACE + path.relative_to(root).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of a page that cross the border of `docs/`; a wide table takes the room of the contents."""
    if _WIDE.search(markdown):
        page.meta["hide"] = ["toc"]
    source = page.file.src_uri
    return _LINK.sub(lambda match: _turned(match[1], source, files), markdown)


def _turned(target: str, source: str, files: Files) -> str:
    """A link of the repository as a link of the site."""
    outside = source.startswith(_PLACE)
    stands = source.removeprefix(_PLACE) if outside else f"docs/{source}"
    leads = posixpath.normpath(posixpath.join(posixpath.dirname(stands), target))
    if not outside and leads.startswith("docs/"):
        return target
    site = leads.removeprefix("docs/") if leads.startswith("docs/") else _PLACE + leads
    if files.get_file_from_path(site) is None:
        return target  # the strict build names it
    return posixpath.relpath(site, posixpath.dirname(source))
