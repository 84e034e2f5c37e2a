"""How results are shown: tables, the terminal, figures and the page. Nothing here needs torch."""
