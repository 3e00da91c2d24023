"""Speed and scale, measured beside peers in one run. Commands, not tests."""
