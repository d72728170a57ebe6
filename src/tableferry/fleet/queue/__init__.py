"""The queue: a table of jobs in a database or a lakehouse, claimed by compare-and-swap with a lease."""
