"""What every other package builds on: errors, specs, records and run folders; threats, losses and random numbers."""
