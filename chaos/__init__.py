"""The worst day, built on purpose: a load, a schedule of faults, journals, and a proof of what came of it."""
