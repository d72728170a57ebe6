"""How far the fleet is: figures, a forecast, and the pages that show them."""
