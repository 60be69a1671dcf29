"""Stands in for a cluster's own module: what the launcher says of this rank."""

import os

rank = int(os.environ["RANK"])
local_rank = int(os.environ["LOCAL_RANK"])
world_size = int(os.environ["WORLD_SIZE"])
nnodes = 1
