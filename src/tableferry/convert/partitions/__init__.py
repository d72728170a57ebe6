"""The partition columns of a table: inferred from its directories' names, declared, or held against them."""
