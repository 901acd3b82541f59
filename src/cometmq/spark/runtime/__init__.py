"""Sessions, workers and the Java that Spark runs on."""
