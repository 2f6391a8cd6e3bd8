"""Outputs to gradients: the only room that differentiates.

Strategies, for N outputs of a model with D features of each node:

=============  ==================================================================================
``loop``       One ``autograd.grad`` an output: the reference. Any model.
``batched``    All outputs in one vectorized backward pass, which does N times the work at the
               edges. Any model whose operations can be vectorized.
``chain``      All outputs in one backward pass whose work at the edges is done once.
               Backbones on the aggregation primitives (``Backbone.chained``).
``jacobian``   min(N, D) pull-backs for outputs that depend on sums of node features only: heads
               of kind ``pooled`` and those without hidden layers.
``forward``    Tangents of all coordinates, whatever the number of outputs: small molecules,
               hundreds of outputs.
``auto``       The least estimated time (``cost``); ``gnnforce.calibrate()`` measures the
               constants, which are kept in ``$GNNFORCE_CACHE`` or ``~/.cache/gnnforce``.
=============  ==================================================================================

``loop``, ``batched`` and ``auto`` serve the outputs of anybody's model
(``gnnforce.gradients``); all of them ``ForceField.predict``, whose result says in ``choice`` which
one it was. Rows that do not fit into ``GNNFORCE_MEMORY`` bytes go in pieces.

A strategy turns cotangents into pull-backs. Everything else (forces, stress, the public
``gradients``) is arithmetic on what it returns, so that a new one is a function in a file of its
own and a line in ``strategies``.
"""
