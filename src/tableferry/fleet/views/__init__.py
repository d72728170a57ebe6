"""Create the views over tables that moved to another schema or catalog beside their new tables."""
