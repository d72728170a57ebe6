"""Jobs of a fleet as data: states, transitions, steps, pauses and waves."""
