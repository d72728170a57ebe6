"""The log's first commit: what it says, and how it is put and taken back."""
