from . import _of_node as split_dataset_by_node  # noqa: F401
