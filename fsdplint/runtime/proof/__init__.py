"""The proof: a program is run before and after its fixes, and the runs are compared."""
