"""What was measured, as numbers: an audit, a search, findings, the gate and comparisons. Nothing here needs torch."""
