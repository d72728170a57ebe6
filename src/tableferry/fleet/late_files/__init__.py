"""Late files: files that other writers leave in the Hive copy's directories after the switch."""
