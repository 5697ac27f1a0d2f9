"""The road in: claim, admit, run, settle. These rooms never import each other; the worker leads through them."""
