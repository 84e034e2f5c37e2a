"""What to cite: the papers behind everything that a run used, as BibTeX (references.bib holds every entry once)."""
