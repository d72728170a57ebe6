"""Keeping the Hive copy in step with the table that took its place: changes, plan, performing."""

from tableferry.fleet.warehouse.shadow.changes import Done, Shadowed, What
from tableferry.fleet.warehouse.shadow.shadowing import shadow

__all__ = ["Done", "Shadowed", "What", "shadow"]
