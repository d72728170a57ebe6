"""The steps of a cutover and of its undo, as data. ``str(step)`` is the step's line in a plan.

Each step can be repeated. A step that changes the catalog names the ids that it requires at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.pipelines.cutover.views import ViewDefinition
from tableferry.pipelines.model.target_state import Cutover
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class RecordCutover:
    """Record in the state how far the cutover is."""

    target: TableName
    cutover: Cutover

    def __str__(self) -> str:
        match self.cutover.phase:
            case "switching":
                return f"record that the readers of {self.cutover.name} are being cut over to {self.target}"
            case "done":
                return f"record that {self.cutover.name} is a view of {self.target}"
            case "reverting":
                return f"record that the cutover of {self.cutover.name} is being undone"


@dataclass(frozen=True)
class CreateView:
    """Create the view under its staged name unless it is up to date there, and check its columns.

    Attributes:
        view: The staged name.
        target_id: The required id of the target; empty if the platform doesn't report it.
    """

    view: TableName
    definition: ViewDefinition
    target_id: str

    def __str__(self) -> str:
        return f"create the view {self.view} AS {self.definition.query}"


@dataclass(frozen=True)
class CarryAccess:
    """Give a view the grants and tags of the legacy table, or of the view that it replaces."""

    source: TableName
    view: TableName

    def __str__(self) -> str:
        return f"copy the grants and tags of {self.source} to {self.view}"


@dataclass(frozen=True)
class RenameLegacyTable:
    """Rename the legacy table, if it still has its id."""

    name: TableName
    to: TableName
    table_id: str

    def __str__(self) -> str:
        return f"rename the table {self.name} to {self.to.table}"


@dataclass(frozen=True)
class RenameView:
    """Rename a view that `cutover` created for the legacy table with an id."""

    name: TableName
    to: TableName
    table_id: str

    def __str__(self) -> str:
        return f"rename the view {self.name} to {self.to.table}"


@dataclass(frozen=True)
class DropView:
    """Drop a view that `cutover` created for the legacy table with an id."""

    view: TableName
    table_id: str

    def __str__(self) -> str:
        return f"drop the view {self.view}"


@dataclass(frozen=True)
class RemoveCutover:
    """Remove the cutover from the state."""

    target: TableName

    def __str__(self) -> str:
        return f"record that the cutover to {self.target} is undone"


CutoverStep = (
    RecordCutover | CreateView | CarryAccess | RenameLegacyTable | RenameView | DropView | RemoveCutover
)
