"""The figures as one HTML page that loads nothing: for a browser, a phone, an e-mail, or paper."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tableferry.amounts import size
from tableferry.fleet.reports import labels
from tableferry.fleet.reports.charts import STACK, burn_down, over_time
from tableferry.fleet.reports.figure_types import PHASE_WORDS, Figures, Phase

templates = Environment(
    loader=PackageLoader("tableferry.fleet.reports"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.globals["labels"] = labels
templates.filters["number"] = "{:,}".format
templates.filters["size"] = size


_SEARCH = files("tableferry.fleet.reports").joinpath("templates/search.js").read_text(encoding="utf-8")
# A browser runs no other script.
_SEARCH_HASH = "sha256-" + b64encode(hashlib.sha256(_SEARCH.encode()).digest()).decode()


def _breakable(text: object, after: str = "._") -> Markup:
    """Let a long name break after some characters, but not within a number."""
    pieces = re.split(rf"(?<=[{after}])(?![\d\s]|$)", str(text))
    return Markup("<wbr>").join(escape(piece) for piece in pieces)


templates.filters["breakable"] = _breakable


def page(figures: Figures) -> str:
    """Return the page; its size doesn't grow with the fleet."""
    phases = [(phase, PHASE_WORDS[phase], figures.in_phase(phase)) for phase in Phase]
    return templates.get_template("page.html").render(
        figures=figures,
        phases=phases,
        stacked=[(phase, PHASE_WORDS[phase], figures.in_phase(phase)) for phase in STACK],
        ages=list(zip(figures.ages, phases, strict=True)),
        burn_down=burn_down(figures),
        over_time=over_time(figures),
        search=Markup(_SEARCH),
        search_hash=_SEARCH_HASH,
    )
