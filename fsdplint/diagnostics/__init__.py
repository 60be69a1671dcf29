"""Findings and what decides whether they are reported: codes, comments, baselines."""
