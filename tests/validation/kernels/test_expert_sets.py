"""Expert layers, their exchanges and latent attention of serving engines: what a row is as work, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.cost.collectives.collective_times import fastest_s
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.expert_exchanges import ExchangeLaw, Exchanges, exchanges_s, sent_rows
from phaze.cost.kernels.expert_layers import (
    FUSED,
    SCATTERED,
    UNPACKED,
    ExpertLaw,
    busiest_rows,
    expert_layer,
    experts_hit,
)
from phaze.cost.kernels.fitted_constants import law_of
from phaze.cost.kernels.flash_attention import LATENT_TRITON, decodes
from phaze.cost.kernels.kernel_laws import kernels_s
from phaze.cost.kernels.link_constants import with_laws
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.measured.single_operators import product
from phaze.validation.sets.kernels import exchange_measurements, expert_measurements, latent_measurements
from phaze.workload.work import LATENT, Collective, Format

H200 = to_table([load_architecture("h200")])


@pytest.fixture
def read(tmp_path):
    def columns(name, head, *rows):
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join([head, *rows]) + "\n")
        return read_columns(path, TABLES[name])

    return columns


@pytest.mark.parametrize("power", [None, 0.6, 1.0, 1.01, 1.2])
@pytest.mark.parametrize(("tokens", "ranks"), [(16, 1), (512, 4), (4096, 32), (4096, 128)])
def test_rows_of_the_busiest_device(tokens, ranks, power):
    rows = busiest_rows(tokens, 128, 8, ranks, power)
    assert len(rows) == 128 // ranks
    assert rows.max() <= tokens * (1 + 1e-9)  # a token asks an expert once
    mean = tokens * 8 / ranks
    assert rows.sum() >= mean * (1 - 1e-9)
    if power is None or ranks == 1:
        assert rows.sum() == pytest.approx(mean, rel=0.02)
    assert 1 <= experts_hit(rows) <= len(rows)


def test_more_skew_is_more_rows_on_the_busiest_and_fewer_experts_hit():
    even, some, more = (busiest_rows(4096, 256, 8, 32, power) for power in (None, 1.01, 1.2))
    assert even.sum() < some.sum() < more.sum()
    wide = [experts_hit(busiest_rows(64, 256, 8, 1, power)) for power in (None, 1.01, 1.2)]
    assert wide == sorted(wide, reverse=True)


def test_an_expert_layer_by_hand():
    up, down = (product(16, 64, *sides).gemms[0] for sides in ((2048, 1024), (512, 2048)))
    work = expert_layer(FUSED, 4096, 1024.0, up, down)
    law = law_of(ExpertLaw, "experts_fused.yaml", "hopper")
    products = kernels_s(
        [product(16, 64, 2048, 1024), product(16, 64, 512, 2048)], H200, Fidelity.CALIBRATED
    )[0]
    moved = 2 * 1024 * (3 * 2048 + 3 * 512) / 4.8e12
    rows = law.own_rows * moved + law.all_rows * 2 * 4096 * 2048 / 4.8e12 + law.route_s * 4096
    (found,) = kernels_s([work], H200, Fidelity.CALIBRATED)[0]
    assert found == pytest.approx(law.launch_s + law.stretch * products.sum() + rows)
    others = [expert_layer(kind, 4096, 1024.0, up, down) for kind in (SCATTERED, UNPACKED)]
    assert kernels_s([*others, work], H200, Fidelity.CALIBRATED)[0][2] == pytest.approx(found)


MOE = (
    "device,op,dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
    "distribution,kernel_source,latency_ms"
)


def test_rows_of_expert_layers(read):
    judged = expert_measurements.layers(
        read(
            "kernels_moe",
            MOE,
            "NVIDIA H200,moe,bfloat16,64,2048,768,8,128,2,4,balanced,moe_torch_flow_cutlass,0.1",
            "NVIDIA H200,moe,int4_wo,64,2048,768,8,128,2,4,power_law_1.2,sglang_marlin_moe,0.1",
            "NVIDIA H200,moe,fp8,64,2048,768,8,128,2,4,balanced,vllm_modeloptfp8moe_triton_tritonexperts,0.1",
            "NVIDIA GB200,moe,nvfp4,64,2048,768,8,128,2,4,balanced,moe_torch_flow_nongated,0.1",
            "NVIDIA H200,wideep_moe,fp8_block,64,2048,768,8,128,1,4,balanced,wideep_compute_cutlass,0.1",
            "NVIDIA H200,moe,fp3,64,2048,768,8,128,1,4,balanced,moe_torch_flow_cutlass,0.1",
        )
    )
    even, skewed, scattered, plain = (row.works[0] for row in judged.rows)
    assert [w.kind for w in (even, skewed, scattered, plain)] == [FUSED, UNPACKED, SCATTERED, FUSED]
    up, down = even.gemms
    assert (up.groups, up.m, up.k, up.n, down.k, down.n) == (32, 4, 2048, 2 * 384, 384, 2048)
    assert even.rows == 64 * 8
    assert skewed.stream_bytes > even.stream_bytes  # the busiest of four
    assert skewed.gemms[0].operands is Format.BF16
    assert plain.gemms[0].n == 384
    assert sorted(judged.excluded.values()) == [1, 1]
    assert (judged.predicted[Fidelity.CALIBRATED] > judged.predicted[Fidelity.ROOFLINE]).all()


def by_chance(tokens, copies, ranks, near, rng):
    """Rows that device 0 sends: to other devices of its node, and to other nodes, where equal ones are merged."""
    inside = across = 0
    for _ in range(tokens):
        devices = set(rng.integers(ranks, size=copies))
        nodes = {d // near for d in devices}
        across += len(nodes - {0})
        inside += len({(d // near, d % near) for d in devices if d % near})
    return inside, across


@pytest.mark.parametrize(("ranks", "near"), [(8, 8), (16, 8), (64, 8)])
def test_merged_rows_are_those_of_a_draw(ranks, near):
    found = sent_rows(*(np.asarray(float(n)) for n in (4000, 8, ranks, near)), merged=True)
    drawn = by_chance(4000, 8, ranks, near, np.random.default_rng(1))
    assert [float(n) for n in found] == pytest.approx(drawn, rel=0.05)
    inside, across = sent_rows(*(np.asarray(float(n)) for n in (10, 8, ranks, near)), merged=False)
    assert inside + across == pytest.approx(10 * 8 * (ranks - 1) / ranks)


def test_an_exchange_is_as_fast_as_its_slowest_way():
    law = ExchangeLaw(1e-5, 2e-5, 1e-6, 0.5, 0.9, 1e10)
    one = Exchanges(*(np.asarray(v) for v in (16.0, 4e8, 1e8, np.inf)))
    assert exchanges_s(one, 400e9, 50e9, law) == pytest.approx(46e-6 + 1e8 / 45e9)
    assert exchanges_s(one, 100e9, 50e9, law) == pytest.approx(46e-6 + 4e8 / 50e9)
    few = Exchanges(*(np.asarray(v) for v in (16.0, 4e8, 1e8, 4.0)))
    assert exchanges_s(few, 400e9, 50e9, law) == pytest.approx(46e-6 + 5e8 / 40e9)


A2A = (
    "system,op,op_name,dtype,node_num,num_gpus,moe_ep_size,message_size,num_tokens,hidden_size,topk,dispatch_sms,combine_sms,"
    "kernel_source,latency_ms,dispatch_transmit_us,dispatch_notify_us,combine_transmit_us,combine_notify_us,dispatch_avg_t_us,"
    "combine_avg_t_us"
)


def test_rows_of_exchanges(read):
    judged = exchange_measurements.exchanges(
        read(
            "kernels_alltoall",
            A2A,
            "h200_sxm,wideep_deepep_normal,normal,,2,,,,4096,7168,8,20,20,deepep,,400,30,900,60,,",
            "h200_sxm,wideep_deepep_ll,ll,,1,,,,128,7168,8,,,deepep,,,,,,25,40",
            "gb200,trtllm_alltoall,alltoall_dispatch,nvfp4,,,16,,512,7168,8,,,NVLinkTwoSided,0.05,,,,,,",
            "gb200,trtllm_alltoall,alltoall_prepare,nvfp4,,,16,,512,7168,8,,,NVLinkTwoSided,0.01,,,,,,",
            "h200_sxm,custom_allreduce,all_reduce,bfloat16,,8,,1024,,,,,,TRTLLM,0.003,,,,,,",
            "h200_sxm,custom_allreduce,all_reduce,bfloat16,,8,,134217728,,,,,,TRTLLM,1.0,,,,,,",
            "h200_sxm,custom_allreduce,all_reduce,bfloat16,,8,,1024,,,,,,vLLM_custom_eager,0.02,,,,,,",
            "nobody,custom_allreduce,all_reduce,bfloat16,,8,,1024,,,,,,TRTLLM,0.02,,,,,,",
        )
    )
    assert judged.measured.tolist() == pytest.approx([1390e-6, 65e-6, 50e-6, 3e-6, 1e-3])
    assert sorted(judged.excluded.values()) == [1, 1, 1]
    predicted = judged.predicted[Fidelity.CALIBRATED]
    assert (predicted > judged.predicted[Fidelity.ROOFLINE]).all()
    law = law_of(ExchangeLaw, "deepep_low_latency.yaml", "hopper")
    sent = 128 * 8 * 7 / 8 * 7168 * (1 + 4 / 128 + 2) / (law.efficiency * 450e9)
    assert predicted[1] == pytest.approx(2 * (law.launch_s + 8 * law.rank_s) + sent)
    # one kernel for short messages, NCCL for long ones
    network = with_laws(load_network("hgx-h100"), "hopper")
    nccl = [float(fastest_s(Collective.ALL_REDUCE, n, network, 0.0, 8)) for n in (2048.0, 2.0**28)]
    assert predicted[3] < nccl[0]
    assert predicted[4] == pytest.approx(nccl[1])


MLA = "device,op,framework,dtype,kv_cache_dtype,heads,batch,isl,step,kernel_source,latency_ms"


def test_rows_of_latent_attention(read):
    judged = latent_measurements.latent_attention(
        read(
            "kernels_mla",
            MLA,
            "NVIDIA H200,generation_mla,trtllm,bfloat16,bfloat16,16,32,1,4095,default,0.1",
            "NVIDIA H200,generation_mla,trtllm,bfloat16,fp8,16,32,1,4095,default,0.1",
            "NVIDIA H200,context_mla,trtllm,bfloat16,bfloat16,16,2,1024,0,default,0.1",
            "NVIDIA H200,context_mla,sglang,bfloat16,bfloat16,16,2,1024,1024,triton,0.1",
            "NVIDIA H200,mla_context_module,trtllm,bfloat16,bfloat16,16,2,1024,0,default,0.1",
        )
    )
    assert judged.excluded == {latent_measurements.MODULE: 1}
    wide, narrow, heads, latents = (row.works[0] for row in judged.rows)
    assert [w.kind for w in (wide, heads, latents)] == [LATENT, LATENT, LATENT_TRITON]
    assert [decodes(w) for w in (wide, heads, latents)] == [True, False, False]
    assert wide.macs == 32 * 16 * 4096 * (576 + 512)
    assert wide.stream_bytes - narrow.stream_bytes == 32 * 4096 * 576
    assert heads.macs == 2 * 16 * 1024 * 1024 * (192 + 128)
    assert heads.flash.visible == pytest.approx(1025 / 2048)
    assert latents.macs == 2 * 16 * 1024 * 2048 * (576 + 512)
    assert latents.flash.visible == pytest.approx((1024 + 1025 / 2) / 2048)
    assert np.isfinite(judged.predicted[Fidelity.ANALYTIC]).all()
