"""What was measured, to look at: tables, the terminal, figures and the page. Nothing here needs torch."""
