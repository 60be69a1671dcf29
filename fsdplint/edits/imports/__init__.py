"""Adding and removing import statements."""
