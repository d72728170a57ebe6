"""Which rows of its sources a legacy table contains, and the proof."""
