"""What a recording knows of content: full masks, positions, groups of rows that a module goes through one by one."""

import pytest
import torch
from torch import nn

from phaze import from_torch
from phaze.errors import InputError, Remark
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.workload import Mode


class Dropping(nn.Module):
    """Works on what a mask lets through."""

    def __init__(self, mask=lambda mask: mask):
        super().__init__()
        self.inner, self.mask = nn.Linear(8, 4), mask

    def forward(self, x, mask):
        return self.inner(x[self.mask(mask)])


FULL = torch.ones(2, 6, dtype=torch.bool)
ROWS = torch.zeros(2, 6, 8)


def recorded(module, *inputs, **more):
    """The workload of a pass forward."""
    return from_torch(module, inputs, mode=Mode.PREFILL, **more)


def products(workload, batch):
    """Rows of every product of a workload."""
    graph = workload.operator_graph(batch)
    return [graph.tensors[op.outputs[0]].shape for op in graph.operators if op.kind is OpKind.MATMUL]


def test_a_full_mask_lets_everything_through():
    workload = recorded(Dropping(), ROWS, FULL)
    assert workload.chain(3, 1).model_flops == recorded(nn.Linear(8, 4), ROWS).chain(3, 1).model_flops
    assert workload.parameter_count == 8 * 4 + 4


def test_what_follows_from_a_full_mask_is_known():
    lengths = Dropping(lambda mask: torch.arange(6)[None] < mask.sum(1)[:, None] // 2)
    assert products(recorded(lengths, ROWS, FULL), 4) == [(4 * 3, 4)]


@pytest.mark.parametrize(
    "mask",
    [torch.tensor([[True] * 5 + [False]] * 2), torch.ones(2, 6, dtype=torch.bool, device="meta")],
    ids=["not full", "without content"],
)
def test_other_masks_are_content(mask):
    with pytest.raises(InputError, match=r"depend.* on the content of tensors"):
        recorded(Dropping(), ROWS, mask)


def test_numbers_of_ones_are_no_masks():
    with pytest.raises(InputError, match=r"depend.* on the content of tensors"):
        recorded(Dropping(lambda ids: ids == 1), ROWS, torch.ones(2, 6, dtype=torch.long))


def test_what_is_overwritten_by_the_unknown_is_unknown():
    def spoiled(mask):
        part = mask[:, :3]
        kept = mask.clone()
        kept[0, 0] = ~kept[0, 0]
        part.logical_and_(torch.rand(1) > 0.5)
        return mask

    with pytest.raises(InputError, match=r"depend.* on the content of tensors"):
        recorded(Dropping(spoiled), ROWS, FULL)


class Positions(nn.Module):
    """Reads every third place, worked out from positions, and goes as far as they say."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        steps = torch.arange(x.shape[1])
        places = (steps % 3 == 0).nonzero().squeeze(1)
        x = x[:, places]
        for _ in range(int(steps.max()) - 9):
            x = self.inner(x)
        return x


def test_positions_are_known():
    assert products(recorded(Positions(), torch.zeros(2, 12, 8)), 5) == [(5, 4, 8), (5, 4, 8)]


class Checking(nn.Module):
    """Checks what it cannot know before it drops what it can."""

    def __init__(self, tokens):
        super().__init__()
        self.inner, self.tokens = nn.Linear(8, 4), tokens

    def forward(self, x, mask, ids):
        rows = x[mask]
        torch._check((ids == 1).sum().item() == rows.shape[0])
        torch._check_tensor_all(ids < 7)
        return self.inner(rows)[:, : self.tokens]


def test_checks_of_inputs_are_taken_to_hold():
    ids = torch.zeros(2, 6, dtype=torch.long)
    assert products(recorded(Checking(4), ROWS, FULL, ids), 4) == [(4, 6, 4)]


class Experts(nn.Module):
    """A mixture that goes through the experts that have any rows (as transformers had Mixtral)."""

    def __init__(self, experts, top):
        super().__init__()
        self.router, self.top = nn.Linear(16, experts), top
        self.experts = nn.ModuleDict({f"expert_{i}": nn.Linear(16, 16) for i in range(experts)})

    def forward(self, x):
        rows = x.flatten(0, 1)
        scores, chosen = self.router(rows).softmax(-1).topk(self.top)
        choice = nn.functional.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        found = torch.zeros_like(rows)
        for expert in torch.greater(choice.sum((-1, -2)), 0).nonzero():
            rank, row = torch.where(choice[expert].squeeze(0))
            found.index_add_(0, row, self.experts[f"expert_{expert[0]}"](rows[row]) * scores[row, rank, None])
        return found.view_as(x)


@pytest.mark.parametrize("top", [1, 2])
def test_experts_in_a_loop_have_rows_alike(top):
    with pytest.warns(Remark, match=r"loads as balanced \(in forward, line \d+"):
        workload = recorded(Experts(4, top), torch.zeros(2, 8, 16))
    assert workload.parameter_count == 4 * (16 * 16 + 16) + 16 * 4 + 4
    assert workload.chain(3, 1).model_flops == 2 * 3 * 8 * (16 * 4 + top * 16 * 16)


class Converting(nn.Module):
    """Turns its weights into what they are, as routers do that want all bits."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 4)

    def forward(self, x):
        return self.inner.to(torch.float32)(x)


def test_weights_that_stay_as_they_are_are_not_put_elsewhere():
    with torch.device("meta"):
        module = Converting()
    assert recorded(module, torch.zeros(2, 8)).parameter_count == 36


def test_lines_of_source_are_not_recorded_and_torch_is_left_as_it_was():
    from torch.fx import config

    class Asking(torch.nn.Module):
        def forward(self, x):
            seen.append(config.do_not_emit_stack_traces)
            return x * 2

    seen, before = [], config.do_not_emit_stack_traces
    from_torch(Asking(), (torch.zeros(1, 3),))
    assert set(seen) == {True}
    assert config.do_not_emit_stack_traces is before
