"""firetime from the first dispatch to the last dead letter: a tutorial through the public API, to be read by number."""
