"""The log's first commit: what it says, and how it is written and removed."""
