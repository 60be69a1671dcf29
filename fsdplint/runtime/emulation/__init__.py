"""Runs a program for CUDA and NCCL on CPU ranks with gloo.

`activation.install` puts wrappers around torch's functions. They do nothing until
`activation.choose` decides that this process emulates the devices that the program expects. The
wrappers lie below the recorder's patches, so that the record holds what the program asked for
("nccl", "cuda:0").
"""
