"""The Hadoop of Spark's driver behaves like the other kinds of storage."""

from __future__ import annotations

from pyspark.sql import SparkSession
from tests import object_stores
from tests.storage_behaviour import FILES, TABLES

from tableferry.storage.hadoop import Hadoop, Location


def test_hadoop_behaves_like_all_storage(spark: SparkSession, s3_port: int) -> None:
    """In S3; on local disks, Hadoop hides its checksum files and isn't used."""
    with object_stores.moto(s3_port) as (address, _):
        top = Location(object_stores.s3(address, "behaviour").uri.replace("s3://", "s3a://"))
        hadoop = Hadoop(spark)
        assert hadoop.can_create
        for behaviour in (*FILES, *TABLES):
            behaviour(hadoop, top / behaviour.__name__)
