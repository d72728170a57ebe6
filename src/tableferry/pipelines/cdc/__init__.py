"""What AUTO CDC means, as queries and statements on event logs and targets."""
