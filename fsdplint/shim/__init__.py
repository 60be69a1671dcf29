"""The recorder and the proof: programs run on several ranks. Needs torch."""
