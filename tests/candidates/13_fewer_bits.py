# %% shared
import numpy as np
import tvm
from tvm.script import tirx as T
