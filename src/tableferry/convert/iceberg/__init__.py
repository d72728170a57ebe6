"""Read the metadata of Iceberg tables whose data files are Parquet, with pyiceberg.

Terms and types are those of the Iceberg specification (https://iceberg.apache.org/spec/).
"""

from tableferry.convert.iceberg import metadata as metadata
from tableferry.convert.iceberg import reading as reading
