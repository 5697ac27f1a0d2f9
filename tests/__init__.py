"""The tests: story, edges, laws, cases, chaos, house."""
