"""The grid: every method on every kind of shift, with the same budget of tuning, and what the differences are worth."""
