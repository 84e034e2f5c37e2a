"""What several studies compute, or what one computes that deserves a file of its own."""
