"""Run folders -> one page to look at. Never trains."""
