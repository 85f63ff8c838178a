"""The certified search: bound every point, look at the most promising first, stop when nothing can be better.

Points over a budget are known without evaluating. The others fall at one of four stages, each tighter and
dearer than the one before:
  roofline    model FLOPs at peak: not even a perfect placement could matter
  work        time of all layers together, spread evenly over all devices
  path        critical-path and work bounds per layer, and the least time a placement of them can take
  placement   schedule bounds and the exact stage partition of them
What remains is evaluated: exact schedules, exact placement. A point matters only if its optimistic throughput
at its own TDP is not dominated by an evaluated point, so that the frontier is complete, and with it the
optimum of every objective that grows with throughput and falls with TDP.

The first three stages see every point, block by block; what they leave stands in a pool of bounded size.
"""
