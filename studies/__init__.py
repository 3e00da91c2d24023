"""Studies on real data that the claims in docs/ rest on. Commands, not tests."""
