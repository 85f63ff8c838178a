"""Transformers in plain torch, written as the common model libraries write them; for tests of what is recorded."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

TOKENS, WIDTH, HEADS, GROUPS, HIDDEN, VOCABULARY, LAYERS = 32, 64, 4, 2, 176, 500, 2
HEAD = WIDTH // HEADS

SHAPE = {"layers": LAYERS, "hidden": WIDTH, "heads": HEADS, "vocabulary": VOCABULARY, "max_positions": TOKENS}
LLAMA = {
    **SHAPE,
    **{"kv_heads": GROUPS, "ffn_hidden": HIDDEN, "gated": True, "activation": "silu", "norm": "rms"},
    **{"positions": "rope", "bias": False, "tied_embeddings": False},
}
GPT2 = {**SHAPE, "activation": "gelu_tanh", "dropout": 0.1, "attention_dropout": 0.1}
BERT = {**SHAPE, "norm_place": "post", "token_types": 2, "activation": "gelu", "dropout": 0.1}
BERT |= {"attention_dropout": 0.1, "ffn_hidden": HIDDEN}
IMAGE, PATCH, CLASSES = 32, 8, 10
VIT = {"image": IMAGE, "patch": PATCH, "classes": CLASSES, "activation": "gelu", "ffn_hidden": HIDDEN}
VIT |= {key: SHAPE[key] for key in ("layers", "hidden", "heads")}
BUCKETS, EXPERTS, CHOSEN = 32, 8, 2
T5 = {**SHAPE, "positions": "relative", "position_buckets": BUCKETS, "norm": "rms", "bias": False}
T5 |= {"activation": "relu", "ffn_hidden": HIDDEN}
MIXTRAL = {**LLAMA, "experts": {"number": EXPERTS, "per_token": CHOSEN, "hidden": HIDDEN}}


class RmsNorm(nn.Module):
    def __init__(self, width, form="rsqrt"):
        super().__init__()
        self.weight, self.form = nn.Parameter(torch.ones(width)), form

    def forward(self, x):
        y = x.to(torch.float32)
        square = (y * y if self.form == "divided" else y.pow(2)).mean(-1, keepdim=True)
        if self.form == "divided":
            return y / torch.sqrt(square + 1e-6) * self.weight
        y = y * torch.rsqrt(square + 1e-6)
        return (1.0 + self.weight) * y if self.form == "plus one" else self.weight * y.to(x.dtype)


class LayerNorm(nn.Module):
    """Written out."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return self.weight * (centred / torch.sqrt(variance + 1e-5)) + self.bias


def turned(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def neighbours_turned(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def rotation(form, length, x):
    """x (batch, heads, tokens, size) turned by its position."""
    angles = torch.outer(torch.arange(length), 10000.0 ** -(torch.arange(0, HEAD, 2) / HEAD))
    if form == "complex":
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2).type_as(x)
    if form == "in part":  # of a head
        some, rest = x[..., : HEAD // 2], x[..., HEAD // 2 :]
        angles = torch.cat((angles, angles), -1)[:, : HEAD // 2]
        return torch.cat((some * angles.cos() + turned(some) * angles.sin(), rest), -1)
    if form == "halves":
        (a, b), cos, sin = x.chunk(2, -1), angles.cos(), angles.sin()
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    angles = torch.cat((angles, angles), -1)
    return x * angles.cos() + (neighbours_turned if form == "neighbours" else turned)(x) * angles.sin()


def repeated(x, times):
    batch, heads, length, size = x.shape
    return x[:, :, None].expand(batch, heads, times, length, size).reshape(batch, heads * times, length, size)


def written_out(q, k, v, dropout=0.0, form="matmul"):
    """Attention as products, with a causal mask added."""
    mask = torch.full((q.shape[2], q.shape[2]), float("-inf")).triu(1)
    if form == "batched":  # batch and heads as one
        shape = q.shape
        q, k, v = (t.flatten(0, 1) for t in (q, k, v))
        scores = torch.bmm(q * HEAD**-0.5, k.transpose(1, 2)) + mask
        return torch.bmm(scores.softmax(-1), v).view(shape)
    scores = torch.matmul(q, k.transpose(2, 3)) * HEAD**-0.5 + mask
    weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(functional.dropout(weights, dropout, training=dropout > 0), v)


class GroupedAttention(nn.Module):
    def __init__(self, form="turned", attention="kernel"):
        super().__init__()
        self.form, self.attention = form, attention
        self.q_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, GROUPS * HEAD, bias=False) for _ in range(2))

    def forward(self, x):
        batch, length, _ = x.shape
        parts = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        q, k, v = (p.view(batch, length, -1, HEAD).transpose(1, 2) for p in parts)
        q, k = (rotation(self.form, length, t) for t in (q, k))
        k, v = (repeated(t, HEADS // GROUPS) for t in (k, v))
        if self.attention == "kernel":
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = written_out(q, k, v, form=self.attention)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class GatedHalf(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Llama(nn.Module):
    def __init__(self, form="turned", attention="kernel", norm="rsqrt"):
        super().__init__()
        self.embed_tokens, self.norm = nn.Embedding(VOCABULARY, WIDTH), RmsNorm(WIDTH, norm)
        halves = (
            (GroupedAttention(form, attention), GatedHalf()),
            (GroupedAttention(form, attention), GatedHalf()),
        )
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {"norm1": RmsNorm(WIDTH, norm), "self_attn": a, "norm2": RmsNorm(WIDTH, norm), "mlp": m}
            )
            for a, m in halves
        )
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = x + layer["self_attn"](layer["norm1"](x))
            x = x + layer["mlp"](layer["norm2"](x))
        return self.lm_head(self.norm(x))


class Product(nn.Module):
    """GPT-2's own linear layer: a stored (inputs, outputs) matrix on flattened tokens."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.zeros(inputs, outputs)),
            nn.Parameter(torch.zeros(outputs)),
        )

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


class Gpt2Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.ln_1, self.ln_2 = norm(WIDTH), norm(WIDTH)
        self.c_attn, self.c_proj = Product(WIDTH, 3 * WIDTH), Product(WIDTH, WIDTH)
        self.c_fc, self.mlp_proj = Product(WIDTH, 4 * WIDTH), Product(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.c_attn(self.ln_1(x)).split(WIDTH, dim=2)
        q, k, v = (p.view(batch, length, HEADS, HEAD).transpose(1, 2) for p in parts)
        mixed = written_out(q, k, v, 0.1).transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + functional.dropout(self.c_proj(mixed), 0.1)
        return x + functional.dropout(self.mlp_proj(gelu_new(self.c_fc(self.ln_2(x)))), 0.1)


class Gpt2(nn.Module):
    def __init__(self, norm=nn.LayerNorm):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.h, self.ln_f = nn.ModuleList(Gpt2Block(norm) for _ in range(LAYERS)), norm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]).unsqueeze(0))
        x = functional.dropout(x, 0.1)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Attention(nn.Module):
    """Queries of x, keys and values of x or of another sequence, each by a product of its own."""

    def __init__(self, *, bias=True, dropout=0.0, causal=False):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=bias) for _ in range(4))
        self.dropout, self.causal = dropout, causal

    def forward(self, x, other=None, distances=None):
        other = x if other is None else other
        parts = (self.q(x), self.k(other), self.v(other))
        q, k, v = (p.unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for p in parts)
        known = {"dropout_p": self.dropout, "attn_mask": distances}
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, **known)
        return self.o(mixed.transpose(1, 2).flatten(2))


class BertBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm1, self.norm2 = (
            Attention(dropout=0.1),
            nn.LayerNorm(WIDTH),
            nn.LayerNorm(WIDTH),
        )
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        x = self.norm1(functional.dropout(self.attention(x), 0.1) + x)
        return self.norm2(functional.dropout(self.down(functional.gelu(self.up(x))), 0.1) + x)


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.types = (nn.Embedding(n, WIDTH) for n in (VOCABULARY, TOKENS, 2))
        self.norm, self.blocks = nn.LayerNorm(WIDTH), nn.ModuleList(BertBlock() for _ in range(LAYERS))
        self.transform, self.head_norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.decoder = nn.Linear(WIDTH, VOCABULARY)
        self.decoder.weight = self.words.weight

    def forward(self, tokens, types):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1])) + self.types(types)
        x = functional.dropout(self.norm(x), 0.1)
        for block in self.blocks:
            x = block(x)
        return self.decoder(self.head_norm(functional.gelu(self.transform(x))))


class VitBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm1, self.norm2 = Attention(), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.zeros(1, (IMAGE // PATCH) ** 2 + 1, WIDTH))
        self.blocks, self.norm = nn.ModuleList(VitBlock() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class T5Block(nn.Module):
    def __init__(self, *, decoder):
        super().__init__()
        self.attention = Attention(bias=False, causal=False)
        self.cross = Attention(bias=False) if decoder else None
        self.norms = nn.ModuleList(RmsNorm(WIDTH) for _ in range(2 + decoder))
        self.up, self.down = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x, distances, source=None):
        x = x + self.attention(self.norms[0](x), distances=distances)
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), source)
        return x + self.down(functional.relu(self.up(self.norms[-1](x))))


class T5Model(nn.Module):
    """An encoder and a decoder with tables of distances, which all blocks of a stack share."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(VOCABULARY, WIDTH)
        self.tables = nn.ModuleList(nn.Embedding(BUCKETS, HEADS) for _ in range(2))
        self.encoder, self.decoder = (
            nn.ModuleList(T5Block(decoder=decoder) for _ in range(LAYERS)) for decoder in (False, True)
        )
        self.norms = nn.ModuleList(RmsNorm(WIDTH) for _ in range(2))

    def forward(self, source, target):
        places = torch.arange(TOKENS)
        apart = (places[None] - places[:, None]).clamp(0, BUCKETS - 1)
        one, other = (table(apart).permute(2, 0, 1)[None] for table in self.tables)
        x = self.shared(source)
        for block in self.encoder:
            x = block(x, one)
        x, y = self.norms[0](x), self.shared(target)
        masked = other.masked_fill(places[None] > places[:, None], float("-inf"))
        for block in self.decoder:
            y = block(y, masked, x)
        return self.norms[1](y) @ self.shared.weight.T


class Mixture(nn.Module):
    """Experts by grouped products of sorted rows."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.gate_up = nn.Parameter(torch.zeros(EXPERTS, 2 * HIDDEN, WIDTH, dtype=torch.bfloat16))
        self.down = nn.Parameter(torch.zeros(EXPERTS, WIDTH, HIDDEN, dtype=torch.bfloat16))

    def forward(self, x):
        rows = x.reshape(-1, WIDTH)
        weights, chosen = self.gate(rows).softmax(-1).topk(CHOSEN, -1)
        order = chosen.flatten().argsort()
        ends = torch.histc(chosen.float(), bins=EXPERTS, min=0, max=EXPERTS - 1).cumsum(0).to(torch.int32)
        sent = rows[order // CHOSEN].bfloat16()
        gate, up = torch._grouped_mm(sent, self.gate_up.transpose(1, 2), offs=ends).chunk(2, -1)
        made = torch._grouped_mm(functional.silu(gate) * up, self.down.transpose(1, 2), offs=ends)
        made = made * weights.flatten()[order][:, None]
        return made[order.argsort()].view(-1, CHOSEN, WIDTH).sum(1).view(x.shape).float()


class Mixtral(Llama):
    def __init__(self):
        super().__init__()
        for layer in self.layers:
            layer["mlp"] = Mixture()
