"""Finds files that other writers leave in the Hive copy's directories after the new table took its name.

A job of Hive's that started before the switch may commit a file there long after it, whose rows the new table
doesn't have. So the files that were there at the switch are recorded, and each shadow, archive and revert
compares them with those that are there now.
"""
