"""The partition columns of a table: inferred from its directories' names, declared, or held against them."""

from tableferry.convert.partitions.columns import declared
from tableferry.convert.partitions.inference import check, infer

__all__ = ["check", "declared", "infer"]
