"""Time: on time, in order, recurring, led by whoever is there; docs/time.md says what these tests hold it to."""
