"""The short form of the worst day, and the harness itself: the same every time, and blind to nothing."""
