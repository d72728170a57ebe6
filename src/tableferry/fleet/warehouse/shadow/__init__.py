"""Keeping the Hive copy in step with the table that took its place: changes, plan, performing."""

from tableferry.fleet.warehouse.shadow.changes import Action, PartitionUpdate, ShadowResult
from tableferry.fleet.warehouse.shadow.shadowing import shadow

__all__ = ["Action", "PartitionUpdate", "ShadowResult", "shadow"]
