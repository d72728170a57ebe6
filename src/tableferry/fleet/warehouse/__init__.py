"""Read and change tables through Spark and the catalog."""
