"""Architecture or operations? A full factorial of old and new levels, measured in the same rounds."""
