"""What is done to real tables, through Spark and the catalog."""
