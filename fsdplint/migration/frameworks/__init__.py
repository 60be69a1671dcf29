"""What the rules on frameworks' own FSDP settings share."""
