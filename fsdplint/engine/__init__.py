"""Sessions: files are checked and fixed, in one or several processes, with a cache."""
