"""Statistics of numbers, not of records: intervals, correlation, tests and confidence sequences."""
