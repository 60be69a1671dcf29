"""Stands in for torchmetrics."""
