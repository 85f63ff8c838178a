"""The result document: what every command prints with `--json` and every run directory holds."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from phaze.cost.fidelity import Fidelity
from phaze.document_names import DocumentName
from phaze.explore.documents.document_record import Record
from phaze.explore.documents.network_report import NetworkReport
from phaze.explore.documents.plan_record import PlanBreakdown, PlanKind, PlanMemory, StrategyRecord
from phaze.explore.documents.robustness_document import Robustness
from phaze.explore.documents.strategy_report import StrategyReport, WhamReport
from phaze.explore.documents.two_designs_report import TwoDesigns
from phaze.ranges import NOISE, Counted, Figure, Worked, WorkedOutShare
from phaze.workload.operators.low_precision import Recipe


class OwnOptimum(Record):
    """The best design for one workload alone, in the same space and budgets."""

    id: str = Field(description="the design's name within the space")
    throughput_samples_per_s: float
    upper_bound_samples_per_s: float = Field(description="no point of the space is faster on this workload")
    gap: float = Field(description="(upper bound - throughput) / throughput; 0: proven optimal")
    area_mm2: float
    tdp_w: float


class Share(Record):
    """What one workload gets from the common design."""

    weight: float = Field(description="as given; weights count relative to each other")
    throughput_samples_per_s: float = Field(description="on the common design")
    ratio: float = Field(description="over the throughput of the workload's own best design")
    regret: float = Field(
        description="1 - ratio: what is lost against the workload's own best design; below 0 where the time for that "
        "one was too short"
    )
    own: OwnOptimum


class Cross(Record):
    """One design on all workloads."""

    id: str
    winner_for: list[str] = Field(
        description="workloads whose own best design this is; none: the common design"
    )
    score: float = Field(description="the combined score; 0 where some workload does not fit")
    throughputs_samples_per_s: dict[str, float] = Field(description="per workload; 0 where it does not fit")
    tdp_w: float
    area_mm2: float


class ScorePoint(Record):
    """One step of the frontier of score against power."""

    id: str
    score: float
    throughputs_samples_per_s: dict[str, float] = Field(description="per workload")
    tdp_w: float
    area_mm2: float
    architecture: dict[str, Any] = Field(description="hardware fields, as in an architecture YAML file")


class PortfolioReport(Record):
    """One common design for several workloads."""

    combine: str = Field(description="geomean, mean, throughput or worst")
    score: float = Field(description="of the common design")
    workloads: dict[str, Share]
    cross: list[Cross] = Field(
        description="the common design, then each workload's own best, on all workloads"
    )
    frontier: list[ScorePoint] = Field(description="designs that no other one beats in score and power")


class ClusterChoice(Record):
    """One number of devices of the grid."""

    devices: int = Field(description="accelerators of the cluster")
    power_per_device_w: float | None = Field(description="what one accelerator may draw with so many of them")
    price_per_device_usd: float | None = Field(description="what one may cost to make with so many of them")
    status: str = Field(
        description="searched; bounded: cannot be better; infeasible: nothing fits and is fast enough; "
        "open: time was over"
    )
    upper_bound_samples_per_s: float = Field(description="no design is faster with so many devices")
    throughput_samples_per_s: float | None = Field(description="of the best design, where searched")
    id: str | None = Field(description="of the best design, where searched")


class ClusterReport(Record):
    """The best number of devices within budgets for the whole cluster."""

    power_budget_w: float | None
    cost_budget_usd: float | None
    overhead: float = Field(description="power of the cluster over that of its accelerators")
    devices: int = Field(description="the best number of accelerators")
    power_w: float = Field(description="accelerators at their TDP, times the overhead")
    cost_usd: float = Field(description="of making the accelerators")
    choices: list[ClusterChoice] = Field(description="every number of devices of the grid, ascending")


class TrainingRun(Record):
    """A whole training run on the winner: time, energy and money, each from stated assumptions."""

    samples: float = Field(description="sequences or images seen in all")
    tokens: float | None = Field(description="samples x sequence length, where the model has one")
    duration_s: float = Field(description="samples over throughput; restarts and failures are not in it")
    energy_j: float = Field(description="accelerators, as the model counts it")
    facility_energy_j: float = Field(description="of the site: with hosts, network and cooling")
    electricity_usd: float = Field(description="price of the energy of the site; 0 where devices are rented")
    chips_usd: float = Field(
        description="manufacturing cost of all devices x duration / (lifetime x utilisation); 0 where they are rented"
    )
    total_usd: float = Field(
        description="sum of cost_parts_usd; in documents without them electricity_usd + chips_usd"
    )
    chip_usd: float = Field(description="manufacturing cost of one accelerator")
    usd_per_kwh: float
    power_usage_effectiveness: float
    lifetime_s: float = Field(description="over which an accelerator is written off")
    cost_parts_usd: dict[str, Figure] = Field(
        default_factory=dict, description="as those of a sample, for all samples; none in older documents"
    )
    carbon_kg: Figure | None = Field(default=None, description="sum of carbon_parts_kg, CO2 equivalent")
    carbon_parts_kg: dict[str, Figure] = Field(default_factory=dict, description="as those of a sample")
    energy_parts_j: dict[str, Figure] = Field(default_factory=dict, description="as those of a sample")
    device_usd: float | None = Field(
        default=None,
        description="one accelerator with its design, margin and share of hosts, network, racks and building",
    )


RESULT_SCHEMA = DocumentName.RESULT.version(4)


class Stage(Record):
    """One pipeline stage."""

    layers: list[str] = Field(
        description="names of the layers, first to last; of all parts, where stages have several"
    )
    devices: int = Field(description="devices of one pipeline that share this stage (tensor x context)")
    load_s: Figure = Field(description="time one microbatch occupies the stage, transfers included")
    memory_bytes: Figure = Field(description="peak memory on one of its devices")


class Placement(Record):
    """How the workload is spread over the devices."""

    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    microbatch_size: int
    recompute: str = Field(description="none, selective or full")
    recipe: Recipe | None = Field(
        default=None,
        description="few bits in which linear layers run; none: in the precision of the workload",
    )
    stages: list[Stage]
    plan: StrategyRecord | None = Field(
        default=None,
        description="every choice of the plan; none in documents from before plans were searched",
    )

    @model_validator(mode="after")
    def _with_stages(self) -> Self:
        """Something has to run the layers."""
        if not self.stages:
            msg = "a placement has at least one stage"
            raise ValueError(msg)
        return self


class Breakdown(Record):
    """Where one iteration goes; the parts sum to `iteration_time_s`, `parts` aside, which tells them by cause.

    Every part but the bubble is counted on the slowest stage: the one that sets the pace.
    """

    compute_s: Figure = Field(description="layer time bound by compute units, recomputation included")
    memory_s: Figure = Field(
        description="layer time spent waiting for HBM, or what else the memory beside the die is"
    )
    global_buffer_s: Figure = Field(
        default=0.0,
        description="layer time spent waiting for the global buffer; in documents without it part of compute_s",
    )
    collective_s: Figure = Field(
        description="exposed collectives of groups, stage transfers, gathers of weights, gradient reduction"
    )
    bubble_s: Figure = Field(description="pipeline fill and drain")
    optimizer_s: Figure
    host_s: Figure = Field(default=0.0, description="waiting for the host, and for transfers with its memory")
    parts: PlanBreakdown | None = Field(
        default=None, description="by cause; none in documents from before plans were searched"
    )

    @property
    def spent(self) -> dict[str, float]:
        """Seconds by part; waiting for the host and for the global buffer where there is any."""
        return {
            name: seconds
            for name, seconds in self.model_dump(exclude={"parts"}).items()
            if seconds or name not in ("host_s", "global_buffer_s")
        }


class SampleCost(Record):
    """Money, carbon and energy of one sample on the whole cluster with its hosts, network and building, by part.

    The parts sum to the totals, in their order.
    """

    cost_per_sample_usd: Figure = Field(
        description="sum of cost_parts_usd: the whole system, or rent; staff and software are not in it"
    )
    cost_parts_usd: dict[str, Figure] = Field(
        description="making the chip (dies, memory, packaging, bonding, module), its design, its seller's margin, "
        "hosts, network, racks, building, interest, maintenance and electricity; rented: rent alone"
    )
    carbon_per_sample_kg: Figure = Field(description="sum of carbon_parts_kg, CO2 equivalent")
    carbon_parts_kg: dict[str, Figure] = Field(
        description="making dies, memory, packaging, module and hosts, and electricity of the site; making network and "
        "building is not in it"
    )
    energy_per_sample_j: Figure = Field(description="sum of energy_parts_j: of the site")
    energy_parts_j: dict[str, Figure] = Field(
        description="accelerators as the model counts them, hosts, network, cooling with power distribution"
    )
    tokens: int | None = Field(description="of a sample; null where samples have none")
    cost_per_million_tokens_usd: Figure | None = None
    carbon_per_million_tokens_kg: Figure | None = None
    energy_per_million_tokens_j: Figure | None = None
    chip_usd: Figure = Field(description="manufacturing cost of one accelerator")
    device_usd: Figure = Field(
        description="one accelerator with its design, margin and share of hosts, network, racks and building"
    )


class WorkloadResult(Record):
    """One workload on one architecture under its best placement."""

    rung: Fidelity = Field(default=Fidelity.ANALYTIC, description="rung of the cost model behind all figures")
    iteration_time_s: Worked
    throughput_samples_per_s: Worked
    throughput_tokens_per_s: Figure | None = Field(
        default=None,
        description="tokens through the model, in decode tokens made; none where samples have none",
    )
    mfu: WorkedOutShare = Field(
        description="model FLOPs over (iteration time x all devices x peak), with a recipe its format's peak"
    )
    devices: Counted
    devices_used: Counted
    global_batch: Counted
    energy_per_iteration_j: Figure = Field(description="all devices")
    memory_bytes: Figure = Field(description="largest peak on one device")
    host_memory_bytes: Figure = Field(
        default=0.0, description="largest need of one device in the memory of its host"
    )
    placement: Placement
    breakdown: Breakdown
    memory: PlanMemory | None = Field(
        default=None,
        description="what fills the fullest device; none in documents from before plans were searched",
    )
    kinds: list[PlanKind] = Field(default_factory=list, description="computation by kind of operator")
    cost: SampleCost | None = Field(
        default=None, description="money, carbon and energy of a sample; none in older documents"
    )

    @property
    def drawn_w(self) -> float:
        """Power in W that an accelerator draws while it runs this plan, mean over all devices and the iteration.

        P = energy of an iteration / (its time x devices). Budgets limit the TDP instead, the worst case.
        """
        return self.energy_per_iteration_j / (self.iteration_time_s * self.devices)


class Design(Record):
    """One architecture, its size and power, and what it does."""

    id: str = Field(description="short stable name of the architecture within its space")
    architecture: dict[str, Any] = Field(description="hardware fields, as in an architecture YAML file")
    area_mm2: Worked
    tdp_w: Worked
    area_parts_mm2: dict[str, Figure]
    power_parts_w: dict[str, Figure]
    workloads: dict[str, WorkloadResult]


class FrontierPoint(Record):
    """One point of the Pareto frontier."""

    id: str
    throughput_samples_per_s: Worked
    tdp_w: Worked
    area_mm2: Worked
    energy_per_sample_j: Figure
    memory_bytes: Figure
    mfu: WorkedOutShare
    cost_per_sample_usd: Figure | None = None
    cost_per_million_tokens_usd: Figure | None = None
    carbon_per_sample_kg: Figure | None = None
    carbon_per_million_tokens_kg: Figure | None = None
    architecture: dict[str, Any]


class Comparison(Record):
    """A known chip or plan beside the winner, under the same budget."""

    name: str
    note: str = Field(description="what was changed to fit the budget, or why it does not fit")
    area_mm2: Figure
    tdp_w: Figure
    clock_hz: Figure
    node: str = Field(default="", description="process node")
    published_area_mm2: Figure | None = None
    published_tdp_w: Figure | None = None
    result: WorkloadResult | None = Field(description="none where it does not fit the budget or the memory")


class Certificate(Record):
    """Proof of how far any other point of the space could be better, within the model."""

    optimal: bool
    objective: str
    objective_value: Figure
    upper_bound: Figure = Field(description="at least the objective of every point of the space")
    gap: Figure = Field(description="(upper_bound - objective) / objective")
    scope: list[str] = Field(description="the model choices the bound speaks about")
    space_size: int = Field(description="points = over_budget + pruned + evaluated")
    over_budget: int
    pruned: int
    evaluated: int
    pruned_by: dict[str, int] = Field(
        description="points not evaluated, by the bound that ruled them out; `open`: undecided when stopped"
    )
    frontier_complete: bool
    plans_per_architecture: int | None = Field(
        default=None,
        description="plans of every architecture; each point stands for all plans of its shape",
    )

    @model_validator(mode="before")
    @classmethod
    def _without_noise(cls, content: Any) -> Any:  # noqa: ANN401
        """A bound that is above the objective by rounding alone proves it."""
        if not isinstance(content, dict):
            return content
        value, upper = content.get("objective_value"), content.get("upper_bound")
        if not (
            isinstance(value, float) and isinstance(upper, float) and value < upper <= value * (1 + NOISE)
        ):
            return content
        return content | {"optimal": True, "upper_bound": value, "gap": 0.0}


class Machine(Record):
    """What a run was made on; nothing that tells whose it is."""

    platform: str = Field(description="operating system and processor architecture")
    cores: int = Field(description="that the process could use")
    memory_bytes: int | None = Field(description="of the whole machine; none where it does not tell")


class Asked(Record):
    """A question as the verbs take it, from the command line or from Python: enough to ask it again."""

    verb: str = Field(description="of the command line; phaze.explore is run")
    options: dict[str, Any] = Field(
        description="by their names in Python, as JSON; {object, name} for what was no name and no file"
    )


class Manifest(Record):
    """What is needed to repeat the run."""

    versions: dict[str, str]
    command: list[str] = Field(description="as typed; empty where it was asked from Python")
    asked: Asked | None = Field(default=None, description="none in runs of phaze-result/1")
    seed: int
    inputs_sha256: dict[str, str] = Field(description="of every file that was read, by what it is")
    question_sha256: str | None = Field(
        default=None, description="of asked, seed and inputs_sha256; none in older runs"
    )
    machine: Machine | None = Field(default=None, description="none in runs of phaze-result/1")
    started_utc: str
    wall_time_s: float


class ResultDocument(Record):
    """The answer of `dse run`."""

    schema_version: str = Field(default=RESULT_SCHEMA, alias="schema", serialization_alias="schema")
    request: dict[str, Any] = Field(description="what was asked, every default spelled out")
    best: Design
    certificate: Certificate
    frontier: list[FrontierPoint]
    next_best: list[Design] = Field(
        description="the best evaluated architectures after the winner, one of every kind: chips with the same "
        "objective, power and area have their cores in other groups, and stand in the design table"
    )
    comparison: list[Comparison]
    manifest: Manifest
    cluster: ClusterReport | None = Field(
        default=None, description="a budget for the whole cluster: every number of devices looked at"
    )
    networks: NetworkReport | None = Field(
        default=None, description="a space with networks: that of the best design, and every one looked at"
    )
    training_run: TrainingRun | None = Field(
        default=None, description="a whole training run on the winner: time, energy and money"
    )
    strategy: StrategyReport | None = Field(
        default=None,
        description="a search without proof: its course, and its distance to the certified optimum",
    )
    wham: WhamReport | None = Field(default=None, description="WHAM's search step by step")
    two_designs: TwoDesigns | None = Field(
        default=None, description="two designs for the stages of a pipeline: what the second one buys"
    )
    robustness: Robustness | None = Field(
        default=None, description="near-optimal designs where the constants of the model are wrong"
    )
    portfolio: PortfolioReport | None = Field(
        default=None, description="several workloads: the rule, regret, cross table, frontier of the score"
    )

    @model_validator(mode="after")
    def _of_the_same_workloads(self) -> Self:
        """Every design, and the shares of a common one, speak of the same workloads."""
        names = [set(design.workloads) for design in (self.best, *self.next_best)]
        names += [set(self.portfolio.workloads)] if self.portfolio is not None else []
        if not names[0] or any(own != names[0] for own in names):
            msg = "best, next_best and portfolio do not speak of the same workloads"
            raise ValueError(msg)
        return self
