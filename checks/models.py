"""The course's CNN in the forms that exercises start from, each made once in a kernel."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
import tvm
from torch import nn

import helpers
import kernels
from checks.answers import prepared
from checks.equivalence import Batch, batches

INPUT = (4, 1, 28, 28)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute with one thread for a while."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@prepared
def cnn() -> tuple[dict[str, np.ndarray], nn.Sequential]:
    """Return the trained weights, float32 by name, and PyTorch's model with them."""
    weights = helpers.load_weights("cnn")
    return weights, helpers.pytorch_model(weights)


def own_weights() -> dict[str, np.ndarray]:
    """Return a copy of the weights, for an answer that might write into it."""
    return {name: array.copy() for name, array in cnn()[0].items()}


@prepared
def reference(count: int = helpers.N_IMAGES) -> list[Batch]:
    """Return the first test images in batches of 4, with PyTorch's probabilities for them."""
    with one_thread():  # as in the child, and several would wait for one another
        return list(batches(cnn()[1], helpers.test_loader(count=count)))


def reference_200() -> list[Batch]:
    """Return 50 batches of 4: schedules change no numbers but by a slip in one of the loops."""
    return reference(200)


@prepared
def imported_cnn() -> tvm.IRModule:
    """Return the CNN by TVM's importer, with a PrimFunc for each operator."""
    return helpers.import_model(cnn()[1], INPUT)


@prepared
def fused_cnn() -> tuple[tvm.IRModule, dict[str, str]]:
    """Return the CNN as notebook 06 fuses it, and the names of its PrimFuncs.

    One for conv2d to pooling, one for each dense layer: conv_pool, dense, head.
    """
    return kernels.fuse_layers(helpers.import_operators(cnn()[1], INPUT))


def copied(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module of the same functions, so that an answer may replace some in it."""
    return tvm.IRModule(dict(mod.functions_items()))
