"""Keys left behind by a test: those that firetime documents may stay, any other is a leak."""


def unexpected_keys(keys: list[str]) -> list[str]:
    """Those of `keys` that nobody documented. After every test it is shown all keys of the servers it used."""
    return [key for key in keys if not key.startswith("firetime:")]
