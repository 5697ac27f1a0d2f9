"""What travels: frozen values without I/O, clock or event loop."""
