"""Iceberg tables whose data are Parquet files: what their metadata says of them, read by pyiceberg.

Terms and types are those of the Iceberg specification (https://iceberg.apache.org/spec/).
"""

from tableferry.convert.iceberg import metadata as metadata
from tableferry.convert.iceberg import reading as reading
