"""Laws: for any input, checked with Hypothesis against a plain model."""
