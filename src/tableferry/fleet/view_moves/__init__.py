"""How a view comes along when its tables move: what it names, its new text, and what waits for what."""
