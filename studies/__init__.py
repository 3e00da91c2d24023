"""Studies on real data behind the claims in docs/. Commands, not tests."""
