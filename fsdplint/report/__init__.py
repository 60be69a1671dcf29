"""Writers of findings: one file for each output format."""
