"""Cutover of readers: the legacy table's old name becomes a view of the target, and its undo."""
