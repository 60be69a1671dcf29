"""Launching a program under the recorder, and reading its records."""
