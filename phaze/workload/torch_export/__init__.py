"""Programs recorded by `torch.export`: `.pt2` files without torch, modules with it."""
