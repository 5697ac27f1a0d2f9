"""What people and machines look at; nothing below knows that it exists."""
