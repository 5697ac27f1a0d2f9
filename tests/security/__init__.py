"""Who may do what, what nobody may read or change, and what garbage does."""
