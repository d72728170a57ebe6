"""The five modes, each a plain function that a scheduled job calls."""
