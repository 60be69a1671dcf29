"""`fsdplint migrate`: the migration to FSDP2 by itself, and what there is to say about it."""
