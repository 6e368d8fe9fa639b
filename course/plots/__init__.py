"""Pictures: loop nests and the order of visits, images, graphs, storages, times;
code beside code."""

from course.plots.figure import fingerprint, show
from course.plots.gpus import addresses, threads
from course.plots.graphs import computational_graph, fx_graph, memory, stages
from course.plots.images import class_bars, confusion_matrix, image_grid, network, shares
from course.plots.layers import bias_along, calls, convolution, pooling
from course.plots.listings import SideBySide as side_by_side
from course.plots.listings import builder_and_module
from course.plots.loops import lanes, lifetimes, loop_nests, reduction, register_tile, visit_order
from course.plots.measured import (
    bandwidths,
    by_length,
    compared,
    growth,
    roofline,
    staircase,
    throughput,
    times,
)
from course.plots.moving import live
from course.plots.storages import handed_over, storages
