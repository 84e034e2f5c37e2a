"""What several studies compute."""
