"""Speed and scale, measured against peers in one run. Commands, not tests."""
