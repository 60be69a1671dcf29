"""The rules: their base class, how they are found, and those of plug-ins."""
