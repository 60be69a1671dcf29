"""The FSDP1 to FSDP2 planner that the FSDP2xx rules share."""
