"""What a migration records: baselines, progress, checkpoints, leases."""
