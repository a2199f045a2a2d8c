/*+++
title = "PyTorch softmax"
idea = """\
torch.softmax along rows, on the same arrays and straight into the result. PyTorch keeps short \
rows in the registers of a warp, and longer ones, where they fit, in shared memory."""
kind = "baseline"
+++*/

/*+++
minimum_cc = "8.0"
library = "torch_softmax"

[source]
document = "PyTorch, torch.softmax"
+++*/
