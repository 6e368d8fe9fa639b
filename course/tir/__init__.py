"""TensorIR for pictures and checks: walking a PrimFunc, evaluating its indices, its loop nests.

walk: what is in a PrimFunc, and where. evaluate: expressions, for all iterations at once. loops:
the nests, and the order in which they visit elements. Each imports only the ones before it.
"""
