"""Read the metadata of Iceberg tables whose data files are Parquet, with pyiceberg.

Terms and types are those of the Iceberg specification (https://iceberg.apache.org/spec/).
"""

from tableferry.formats.iceberg import data_files as data_files
from tableferry.formats.iceberg import metadata as metadata
