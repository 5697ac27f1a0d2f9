"""The main job on real input, with everything that may go wrong: what `firetime demo` plays and checks."""
