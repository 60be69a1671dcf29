"""Finding files: which of them matter, which belong together, and who imports whom."""
