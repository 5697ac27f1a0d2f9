"""firetime beside its peers and beside the floor, on one server, in one go: ``make bench``."""
