"""How long tests wait for what must come. Who waits is told of it at once; only a failure takes as long."""

PATIENCE_S = 300.0  # a busy machine may first have to load torch, compile the kernels and load a model
