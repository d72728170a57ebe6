"""The plan of a run: facts are gathered, then pure functions decide."""
