"""Published inference figures, none of which any constant was fitted to.

TensorRT-LLM 0.5 and 0.6.1, A100 80 GB, FP16 (github.com/NVIDIA/TensorRT-LLM, docs/source/performance.md): static
batches, which are all prefilled and then decoded to the end.
"""

from __future__ import annotations

import pytest
from serving_cases import space

from phaze.parallel.serving import Traffic
from phaze.parallel.serving.layer_grid import LayerGrid
from phaze.parallel.serving.model_replica import Chunk, Replica


def replica(model, width, traffic, batch):
    made = space(model, devices=8, chip="a100-80gb", traffic=traffic)
    grid = LayerGrid(made.served, made.chip, width, traffic, (traffic.prompt_tokens,), batch)
    return Replica(grid, made.links, 1)


@pytest.mark.parametrize(
    ("batch", "prompt", "output", "tokens_per_s"),
    [(384, 128, 128, 5586), (60, 128, 2048, 1928), (52, 2048, 128, 591)],
)
def test_throughput_of_llama_7b(batch, prompt, output, tokens_per_s):
    traffic = Traffic(prompt, output)
    one = replica("llama2-7b", 1, traffic, 512)
    several = 8 if batch % 8 == 0 else 4
    prefill = batch / several * one.pass_costs(0, prompt, Chunk(prompt, prompts=several))[0, 0]
    decode = traffic.later_tokens * one.pass_costs(batch, traffic.mean_context)[0, 0]
    assert batch * output / (prefill + decode) == pytest.approx(tokens_per_s, rel=0.08)


@pytest.mark.parametrize(
    ("model", "width", "first_token_s"), [("llama2-7b", 1, 0.133), ("llama3-70b", 4, 0.377)]
)
def test_first_token_of_2048(model, width, first_token_s):
    """The 70B model of the table has a smaller vocabulary than Llama 3's; one token's logits hardly matter."""
    one = replica(model, width, Traffic(2048, 2), 1)
    assert one.pass_costs(0, 2048, Chunk(2048))[0, 0] == pytest.approx(first_token_s, rel=0.12)
