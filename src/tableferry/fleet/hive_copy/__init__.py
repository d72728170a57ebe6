"""The Hive copy, the plan of its updates, and each single change; `shadow_runs` updates it."""
