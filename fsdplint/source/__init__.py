"""Source files: reading, decoding, parsing, and the positions of syntax nodes in the text."""
