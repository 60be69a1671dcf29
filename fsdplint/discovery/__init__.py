"""Finding files: which are relevant, which belong together, and which import others."""
