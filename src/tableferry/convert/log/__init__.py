"""Write, read, extend and remove the Delta log of a converted table."""
