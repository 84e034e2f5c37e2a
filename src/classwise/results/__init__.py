"""Results as numbers: audits, searches, findings, requirements and comparisons. Nothing here needs torch."""
