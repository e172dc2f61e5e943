"""The pages of this folder in; the documentation site out (`make docs`), without a network."""

import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from sphinx.application import Sphinx

import graphuq

project = "graphuq"
author = "The graphuq developers"
copyright = "The graphuq developers, BSD 3-Clause license"
version = release = graphuq.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["reproduction/*.json"]
html_theme = "furo"
html_title = "graphuq"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
# A name in single backticks is a link if it is one of ours, and code if not; types of other projects are not linked.
default_role = "py:obj"
# What a few public objects hold inside, of which a reader need not know, is not either.
INNER = r"EP|Features|Gaussian|Kernel|On\w+|Placement|Quartic|StarEP|T|Target|Whitening"
nitpick_ignore_regex = [
    ("py:obj", ".*"),
    ("py:.*", r"(?!graphuq\.).*"),
    ("py:class", rf"graphuq\.[\w.]+\.({INNER})"),
]


def _name_anchors(app: Sphinx, page: str, source: list[str]) -> None:
    """Make targets of the anchors that a repository's web view needs before headings."""
    source[0] = re.sub(r'^(#+) <a id="([^"]+)"></a>', r"(\2)=\n\1 ", source[0], flags=re.MULTILINE)


def _blocks(docstring: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Runs of a docstring's lines: tables, indented equations and code, and all else."""
    section = False
    for kind, lines in groupby(_kinds(docstring), key=itemgetter(0)):
        block = [line for _, line in lines]
        if kind == "text":
            heads = [line for line in block if line and not line.startswith(" ")]
            section = bool(heads) and re.fullmatch(r"[A-Z]\w+:", heads[-1]) is not None
        yield ("text" if kind == "indented" and section else kind), block


def _kinds(docstring: list[str]) -> Iterator[tuple[str, str]]:
    kind, before = "text", ""
    for line in docstring:
        if line.lstrip().startswith("|"):
            kind = "table"
        elif line.startswith("    ") and (kind == "indented" or not before):
            kind = "indented"
        elif line or kind == "table":
            kind = "text"
        yield kind, line
        before = line


def _as_restructured(
    app: Sphinx, what: str, name: str, thing: object, options: object, docstring: list[str]
) -> None:
    """Markdown's tables and indented blocks, which the docstrings have, as autodoc reads them; bars are no markup."""
    found: list[str] = []
    for kind, block in _blocks(docstring):
        if kind == "table":
            rows = [
                [cell.strip() for cell in line.strip(" |").split(" | ")] for line in block if "---" not in line
            ]
            found += ["", ".. list-table::", "   :header-rows: 1", ""]
            found += [("   * - " if i == 0 else "     - ") + cell for row in rows for i, cell in enumerate(row)]
        elif kind == "indented":
            found += ["", ".. code-block:: text", "", *block]
        else:
            found += [re.sub(r"(``.*?``)|\|", lambda bar: bar[1] or r"\|", line) for line in block]
        found += [""] if kind != "text" else []
    docstring[:] = found


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", _name_anchors)
    app.connect("autodoc-process-docstring", _as_restructured, priority=400)  # before napoleon
    return {"parallel_read_safe": True}
