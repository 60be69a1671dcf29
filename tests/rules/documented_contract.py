"""What PyTorch's documentation asks of a program with FSDP, and which rule finds its violation.

`FOUND` names the example of a rule for each requirement, `RUN` those that only a run finds, `GAPS` the
violations that fail and that no rule finds, and `SILENT` those that fail on no two CPU ranks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gap:
    """A violation that fails, and why no rule finds it.

    Attributes:
        requirement: what the documentation asks for.
        reason: why no rule finds the violation.
        program: the smallest program that violates it.
        shows: what its ranks raise or print, as a regular expression; empty if they hang.
    """

    requirement: str
    reason: str
    program: str
    shows: str


FOUND = {
    # Launch
    "The local rank comes from the environment": "FSDP506/rank_guard",
    "The rank comes from the launcher, and not from a constant": "FSDP513/same_rank_everywhere",
    # Units of sharding
    "The parts of a model are sharded before the model": "FSDP106/blocks_after_root",
    "The blocks of a model are sharded, and not the model alone": "FSDP104/module_list",
    "The model itself is sharded, and not only its parts": "FSDP105/blocks_only",
    "The model is called, and not its `forward`": "FSDP101/loss_in_script",
    "Another method gathers the parameters, or is registered": "FSDP102/encode",
    "The optimizer is built after the sharding": "FSDP103/optimizer_first",
    "The optimizer is built after the last of all shardings": "FSDP103/root_sharded_later",
    "DDP does not wrap a sharded model": "FSDP115/ddp_around_sharded_model",
    # The meta device
    "A model on the meta device gets memory by `to_empty`": "FSDP116/no_materialization",
    "`to` does not move a model from the meta device": "FSDP116/moved_to_a_device",
    "`to_empty` is followed by an initialisation": "FSDP134/only_to_empty",
    "A model on the meta device is sharded before it gets memory": "FSDP603/emptied_first",
    # Options
    "The root keeps its parameters after the forward, by default": "FSDP601/root_with_true",
    "An integer for `reshard_after_forward` divides the ranks": "FSDP117/no_factor_of_the_mesh",
    "`mp_policy` is a policy of FSDP2": "FSDP117/fsdp1_mixed_precision",
    "`offload_policy` is a policy of FSDP2": "FSDP117/fsdp1_cpu_offload",
    "Accumulated gradients are reduced in a precise type": "FSDP412/default_reduce_dtype",
    "FSDP2 is imported from its public module": "FSDP213/module_import",
    "A mesh of two dimensions has names": "FSDP123/mesh_without_names",
    "The first dimension of a mesh replicates": "FSDP124/shard_named_first",
    # Gradients
    "FSDP2 accumulates without `no_sync`": "FSDP401/with_block",
    "The last micro-batch of a step synchronises": "FSDP403/never_the_last",
    "The synchronisation begins before the backward pass": "FSDP403/switched_on_too_late",
    "FSDP2's gradients are clipped by torch's function": "FSDP402/result_unused",
    "A norm of gradients is reduced over the ranks": "FSDP405/norm_in_loop",
    "Gradients are not scaled by a norm of the rank's part": "FSDP405/clipped_by_own_norm",
    "Gradients are clipped before the step": "FSDP416/clipped_too_late",
    "Offloaded gradients need a CPU backend to be clipped": "FSDP508/nccl_only",
    "Every rank makes the optimizer's step": "FSDP414/step_on_rank0",
    # Checkpoints
    "A sharded state is no whole checkpoint": "FSDP301/under_rank_guard",
    "An optimizer's sharded state is no whole checkpoint": "FSDP301/optimizer_of_each_rank",
    "All ranks save a distributed checkpoint": "FSDP501/distributed_checkpoint_on_rank0",
    "All ranks load a distributed checkpoint": "FSDP501/checkpoint_read_on_rank0",
    "A distributed checkpoint has one folder for all ranks": "FSDP311/folder_of_the_rank",
    "A distributed checkpoint is loaded in place": "FSDP313/result",
    "What is loaded is not empty": "FSDP313/into_empty_dict",
    "A checkpoint is read in the format in which it was written": "FSDP316/file_as_folder",
    "A folder of a distributed checkpoint is no file": "FSDP316/folder_as_file",
    "An asynchronous save ends before the next use of the group": "FSDP317/end_of_the_group",
    "The state of one rank is broadcast": "FSDP310/read_on_rank_0",
    "Weights that one rank has are sent before FSDP1 shards them": "FSDP318/no_sync_module_states",
    "Weights that one rank has are sent before `fully_shard`": "FSDP318/loaded_before_sharding",
    "Whole tensors are set with `full_state_dict`": "FSDP302/set_without_the_option",
    "All ranks set a state": "FSDP501/state_set_on_rank0",
    "All ranks gather a state": "FSDP501/state_on_rank0",
    "The rank that has the state writes the file": "FSDP303/unguarded_save",
    "All ranks call `full_tensor`": "FSDP501/full_tensor_on_rank0",
    "Whole tensors are not copied into a sharded model": "FSDP302/weights_from_file",
    "Sharded tensors are not copied into a plain model": "FSDP307/state_into_plain_model",
    # Collectives
    "All ranks call the same collectives": "FSDP501/barrier_under_guard",
    "No rank leaves before a collective": "FSDP501/no_files_on_one_rank",
    "All ranks give a collective tensors of one size": "FSDP517/size_of_each_rank",
    # Join
    "`Join` gets no sharded model": "FSDP505/fsdp2_model",
    "`Join` gets no plain optimizer": "FSDP505/plain_optimizer",
    # Process groups
    "The group exists before it is used": "FSDP514/rank_before_group",
    "The default group is created once": "FSDP504/after_mesh",
    "A store and an address exclude each other": "FSDP513/store_and_address",
    "A store needs the rank and the number of ranks": "FSDP513/store_without_ranks",
    "A rank is below the number of ranks": "FSDP513/rank_too_large",
    "An address of TCP needs the rank": "FSDP513/address_without_rank",
    "An address of a file needs the rank": "FSDP513/file_without_rank",
    "An address is no multicast address": "FSDP513/multicast_address",
    "A timeout is a `timedelta`": "FSDP513/seconds_as_timeout",
    "A device of a group has an index": "FSDP513/device_without_index",
    "A backend is one that torch knows": "FSDP513/misspelt_backend",
    "A backend is no device": "FSDP513/device_as_backend",
    "Several backends are pairs of device and backend": "FSDP513/unreadable_pairs",
    "Nothing communicates after the end of the group": "FSDP514/barrier_after_cleanup",
    "The group ends once": "FSDP514/destroyed_twice",
    "The group ends in the ranks, and not in their launcher": "FSDP514/ended_by_the_launcher",
    "No collective stands between the end of a group and the next one": "FSDP514/barrier_between_groups",
    "The group ends after the loop": "FSDP514/destroyed_in_the_loop",
    # Meshes
    "A mesh has a type of device without an index": "FSDP503/index_in_script",
    "A mesh has a type of device that exists": "FSDP515/device_type_gpu",
    "All ranks give a mesh one shape": "FSDP515/shape_of_each_rank",
    "A mesh has a name for each dimension": "FSDP515/one_name_for_two",
    "The names of a mesh differ": "FSDP515/same_name_twice",
    "A backend is overridden for a dimension of the mesh": "FSDP515/override_of_other_name",
}

RUN = {
    "Every rank has the same number of batches": "FSDP702/training_loop",
    "Every rank calls the same modules": "FSDP701/experts_by_rank",
}

_HEAD = """\
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

"""
_GROUP = 'dist.init_process_group("gloo")\n'
_JOINABLE = """

class Hook(JoinHook):
    def main_hook(self):
        dist.all_reduce(torch.zeros(1))


class Counter(Joinable):
    def __init__(self):
        super().__init__()

    def __call__(self):
        dist.all_reduce(torch.ones(1))

    def join_hook(self, **kwargs):
        return Hook()

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return dist.group.WORLD


"""

GAPS = [
    Gap(
        "A `Joinable` notifies `Join` before its collectives",
        "The program has no sharded model, and the class is the program's own.",
        _JOINABLE
        + _GROUP
        + """\
counter = Counter()
with Join([counter]):
    for step in range(3 + dist.get_rank()):
        counter()
dist.barrier()
""",
        "",
    ),
    Gap(
        "A `Joinable` has the methods of its base class",
        "Python itself names the missing methods when the object is built.",
        """

class Counter(Joinable):
    def __call__(self):
        Join.notify_join_context(self)


"""
        + _GROUP
        + "Counter()\n",
        "abstract class Counter",
    ),
    Gap(
        "`Join` gets objects of one process group",
        "torch names the error, and the process group of a model of DDP is seldom known.",
        _GROUP
        + """\
group = dist.new_group([0, 1])
first, second = DDP(nn.Linear(8, 8)), DDP(nn.Linear(8, 8), process_group=group)
Join([first, second])
""",
        "multiple process groups",
    ),
    Gap(
        "`Join` is only switched off for even inputs",
        "The number of batches of each rank is known to a run only, and the model is not sharded.",
        _GROUP
        + """\
model = DDP(nn.Linear(8, 8))
with Join([model], enable=False):
    for step in range(3 + dist.get_rank()):
        model(torch.randn(2, 8)).sum().backward()
dist.barrier()
""",
        "",
    ),
    Gap(
        "Ranks that a program starts get the address of the first one",
        "The shell or the image may set the variables.",
        """\
for name in ("MASTER_ADDR", "MASTER_PORT"):
    os.environ.pop(name, None)
dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=2)
""",
        "MASTER_ADDR expected",
    ),
    Gap(
        "Ranks that a program starts get their number",
        "The launcher may set the variables.",
        """\
os.environ.pop("RANK")
dist.init_process_group("gloo")
""",
        "RANK expected",
    ),
    Gap(
        "Only members of a group ask for its backend",
        "The members of a group are seldom known.",
        _GROUP
        + """\
group = dist.new_group([0])
dist.get_backend(group)
""",
        "Invalid process group specified",
    ),
    Gap(
        "A rank that is no member of a group has the number -1 in it",
        "The members of a group are seldom known.",
        _GROUP
        + """\
group = dist.new_group([0])
print({0: "writer"}[dist.get_rank(group)])
""",
        "KeyError: -1",
    ),
]

# Violations that fail on no two CPU ranks, each with what they need or showed.
SILENT = {
    "Each process sets its device": "no error on CPU ranks; listed",
    "Each rank has a GPU of its own": "needs two GPUs; listed",
    "Parameters are freed after the forward where memory is short": "memory only",
    "A state is set after a distributed checkpoint was loaded": "it aliases the parameters; listed",
    "NCCL is the backend for GPUs": "speed only",
    "NCCL gets no tensor on the CPU": "needs NCCL; FSDP508 finds a tensor that is made on the CPU",
    "gloo is the backend for CPUs": "needs NCCL",
    "gloo sends no tensor of a GPU": "needs a GPU",
    "XCCL is the backend for XPUs": "needs an XPU",
    "Groups are made in one thread": "no failure in ten runs",
    "All ranks join the default group": "`fully_shard` of the other ranks joins it; listed",
    "A file for the rendezvous is new": "torch removes it; listed",
    "A group has no name of its own": "torch ignores the name; listed",
    "The backend is not left undefined": "torch takes the default backend",
    "Options of a group are those of its backend": "gloo ignores them",
    "A program ends its process group": "no error; listed",
    "All ranks end the process group": "no error with gloo; listed",
}
