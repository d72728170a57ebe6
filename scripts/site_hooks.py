"""MkDocs hooks: pages that are generated from the code, and a check of the built site.

mkdocs.yml names this module; `python -m mkdocs` in the root folder finds it.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from scripts import reference_pages

# References that a browser loads automatically. Links may lead anywhere.
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//"""
    r"""|<link\b(?![^>]*\brel=["']?(?:canonical|prev|next))[^>]*\bhref=["']?(?:https?:)?//"""
    r"""|@import\s+(?:url\()?["']?(?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//""",
    re.IGNORECASE,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated from the code."""
    for path, render in reference_pages.PAGES.items():
        files.append(File.generated(config, path, content=render()))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site whose pages load something from another host."""
    site = Path(config.site_dir)
    loading = [
        f"{file.relative_to(site)}: {match[0]}"
        for file in site.rglob("*")
        if file.suffix in (".html", ".css", ".svg")
        for match in _LOADED.finditer(file.read_text(encoding="utf-8"))
    ]
    if loading:
        raise PluginError("the site loads from other hosts:\n" + "\n".join(sorted(loading)))
