"""What a run did with each view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tableferry.spark.tables import TableName

Outcome = Literal["moved", "replaced", "there", "planned", "waiting", "refused"]


@dataclass(frozen=True)
class ViewReport:
    """What became of one view.

    Attributes:
        view: The old view.
        outcome: ``moved`` now, ``replaced`` as its text had changed, ``there`` already, ``planned`` by a dry
            run, ``waiting`` for what it reads, or ``refused``.
        new: The new view's name; None if it has none yet.
        error: Why it waits or is refused; empty otherwise.
        stays: What the new view reads in its old place.
        statement: What makes the new view.
        loses: Settings that it was made with, and that its new catalog doesn't keep; empty if it keeps them.
    """

    view: TableName
    outcome: Outcome
    new: TableName | None = None
    error: str = ""
    stays: tuple[TableName, ...] = ()
    statement: str = ""
    loses: str = ""


@dataclass(frozen=True)
class ViewsReport:
    """What a run did, view by view, in the order in which it did it.

    Attributes:
        views: The views.
        remedies: What holds for several of those that are refused, each sentence once.
    """

    views: tuple[ViewReport, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether none is refused; one that waits comes along with a later run."""
        return all(view.outcome != "refused" for view in self.views)
