"""Migrates the FSDP settings of Accelerate and Transformers."""
