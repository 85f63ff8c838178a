"""One tier of a network: how its members are wired, how fast, and what an exchange costs beside its bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Topology(StrEnum):
    """Topology: how the members of a tier are wired."""

    SWITCH = "switch"  # everyone to everyone at full bandwidth
    FAT_TREE = "fat-tree"  # the same, but for its oversubscription
    FULLY_CONNECTED = "fully-connected"  # an even share of the bandwidth to every other member
    RING = "ring"  # half of the bandwidth to either neighbour
    TORUS = "torus"  # an even share of the bandwidth to either neighbour in every dimension
    MESH = "mesh"  # links as listed
    DRAGONFLY = (
        "dragonfly"  # groups, an even share of the bandwidth to every other one, and detours over a third
    )
    SHARED = "shared"  # one path that all bytes between members take, such as the memory of the host


class Medium(StrEnum):
    """Medium of the links of a tier, which decides whose fitted constants they have."""

    DIRECT = "direct"  # between accelerators: NVLink, Infinity Fabric, ICI
    HOST = "host"  # PCI Express through switches and processors
    ADAPTER = "adapter"  # network adapters


class Algorithm(StrEnum):
    """Algorithm by which a group runs a collective."""

    RING = "ring"  # every step to the next neighbour
    TREE = "tree"  # two binary trees, each for half of the vector, in a pipeline of chunks
    NODE_TREE = "node-tree"  # the same between nodes, as NCCL builds them: chains inside each
    HALVING_DOUBLING = "halving-doubling"  # partners at distances 1, 2, 4, ...; groups of powers of two
    PAIRWISE = "pairwise"  # one partner after the other
    DIRECT = "direct"  # all partners at once
    IN_NETWORK = "in-network"  # the switches reduce
    HIERARCHICAL = "hierarchical"  # tier by tier, the fastest on each
    SYNTHESIZED = "synthesized"  # stages of any fan-in on the switches of a tree, the fastest (GenTree)


NAMED = tuple(one for one in Algorithm if one is not Algorithm.SYNTHESIZED)
"""Algorithms that libraries have: what a network chooses from unless its file says more."""


@dataclass(frozen=True, slots=True)
class LinkLaw:
    """Cost of an exchange beside its bytes over the bandwidth; the defaults are the alpha-beta model.

    An algorithm with A steps that sends B, reduces C and copies D bytes on every device, whose reductions touch M bytes
    of memory, w senders to one receiver, takes

        launch + A step + x + sqrt(ramp x),
        x = (B + gamma C + delta D + memory M + epsilon max(w - fan_in, 0) B) / (efficiency x bandwidth).

    That is GenModel ("Revisiting the time cost model of AllReduce", arXiv 2409.04202) with its constants as
    multiples of the time to send a byte, and the price of a pipeline of chunks that a short message does not fill:
    with the best size of chunks it is the geometric mean of wire time and start-up. `in_network`: share of the
    bandwidth that a reduction in the switches reaches, `in_network_s`: what it takes to start one.
    """

    launch_s: float = 0.0
    step_s: float = 0.0
    efficiency: float = 1.0
    gamma: float = 0.0
    delta: float = 0.0
    epsilon: float = 0.0
    fan_in: float = 1.0
    memory: float = 0.0
    ramp_s: float = 0.0
    in_network: float = 1.0
    in_network_s: float = 0.0


@dataclass(frozen=True, slots=True)
class OneKernel:
    """All-reduce by one kernel of an inference engine, in which every device reads the payloads of all n - 1 others.

    It takes start + n rank + (n - 1) x payload / (efficiency x bandwidth of the links).
    """

    start_s: float
    rank_s: float
    efficiency: float


class Tier(BaseModel):
    """Domains of `devices` neighbours; None, all there are. Members are the domains of the tier inside, or devices.

    `bandwidth_bytes_per_s`: per device and direction, all of its links together, or of a shared path; None, the
    chip's own links.
    `dims`: extents of a torus in members. `cube`: members on a side of the cubes of a torus that optical circuit
    switches join into blocks of any shape, each a torus of its own. `links`: (member, member, how many) of a mesh.
    `adapters`: of each member, which its devices share; None, one for each device.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    devices: int | None
    topology: Topology = Topology.SWITCH
    medium: Medium = Medium.DIRECT
    bandwidth_bytes_per_s: float | None = None
    law: LinkLaw = LinkLaw()
    dims: tuple[int, ...] = ()
    cube: int | None = None
    links: tuple[tuple[int, int, int], ...] = ()
    oversubscription: float = 1.0
    in_network: bool = False
    adapters: int | None = None
    source: str = ""

    def holds(self, span: int) -> bool:
        """Whether a domain has so many devices."""
        return self.devices is None or span <= self.devices

    def alone(self, inside: int, together: int) -> Tier:
        """The tier to a group of `together` of the `inside` devices of each member that nothing runs beside.

        Each of its devices drives an adapter, as long as there are some: beyond, they share them all.
        """
        own, adapters = self.bandwidth_bytes_per_s, self.adapters
        if own is None or adapters is None:
            return self
        return self.changed(own * inside / adapters * min(1.0, adapters / together))

    def changed(
        self,
        bandwidth_bytes_per_s: float | None = None,
        step_s: float | None = None,
        law: LinkLaw | None = None,
    ) -> Tier:
        """The tier with what is given replaced."""
        new = self.law if law is None else law
        wide = self.bandwidth_bytes_per_s if bandwidth_bytes_per_s is None else bandwidth_bytes_per_s
        return self.model_copy(
            update={
                "bandwidth_bytes_per_s": wide,
                "law": new if step_s is None else replace(new, step_s=step_s),
            }
        )
