"""Cores and memory of a host: how a batch is split among instances on them, and how jobs share them."""

from phaze.solvers.hosts.host_shares import HostJob, HostShares, HostUse, share_host
from phaze.solvers.hosts.instance_split import InstanceProfile, InstanceSplit, split_batch

__all__ = [
    "HostJob",
    "HostShares",
    "HostUse",
    "InstanceProfile",
    "InstanceSplit",
    "share_host",
    "split_batch",
]
