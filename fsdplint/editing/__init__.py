"""Edits of source text: imports, statements, places, and writing the files."""
