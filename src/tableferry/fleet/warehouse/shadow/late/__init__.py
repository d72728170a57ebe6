"""Files that others leave in the Hive copy's directories after it gave its name away.

A job of Hive's that began before the switch may commit a file there long after it, which the new table
doesn't know: rows that nobody would find. So the files that were there at the switch are recorded, and each
shadow, archive and revert compares.
"""
