"""The jobs of a fleet as data, and what decides about them: states, transitions, steps, pauses, waves."""
