"""The audit and the search for the worst class: settings, inputs, checks, and the run from start to end."""
