"""Pictures: loop nests and the order of visits, images, graphs, storages, times;
code beside code."""

from plots.counts import growth
from plots.figure import fingerprint, show
from plots.gpus import addresses, threads
from plots.graphs import computational_graph, fx_graph, memory, stages
from plots.images import class_bars, confusion_matrix, image_grid, network, shares
from plots.layers import bias_along, calls, convolution, pooling
from plots.listings import SideBySide as side_by_side
from plots.listings import builder_and_module
from plots.loops import lanes, lifetimes, loop_nests, reduction, register_tile, visit_order
from plots.measured import bandwidths, compared, roofline, throughput, times
from plots.moving import live
from plots.storages import storages
from plots.structs import handed_over
