"""Edits of source text: imports, statements, and writing the files."""
