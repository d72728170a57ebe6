"""The records of a migration: baselines, progress, checkpoints, leases."""
