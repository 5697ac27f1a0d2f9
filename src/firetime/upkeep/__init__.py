"""What keeps the road open: leases, promotion, election, pruning. Each room has one tick() and never sleeps itself."""
