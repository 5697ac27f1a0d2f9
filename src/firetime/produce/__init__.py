"""The road out: a call becomes a message, messages go to Redis in batches, handles come back."""
