"""Translation of one `model_type` of Hugging Face configs into the dimensions of a family: the form of the tables."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from phaze.workload.families.family_registry import Family

Config = Mapping[str, Any]

ACTIVATIONS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_tanh"), "gelu_tanh"),
        **dict.fromkeys(("silu", "swish"), "silu"),
        "gelu": "gelu",
        "relu": "relu",
        "relu2": "relu2",
    }
)
"""Names of activations there and here."""


def _nothing(config: Config, dimensions: dict[str, Any]) -> None:
    """A type that is a plain renaming."""


@dataclass(frozen=True)
class Translation:
    """Translation of one `model_type` into the dimensions of a family.

    `keys`: field of the family -> key of the config, which must be there; the fields of a part have a dot
    (`experts.number`). `optional`: the same, for keys that may be missing or null (the family's default then
    holds). `fixed`: fields that the type implies. `needs`: values that the config must have, None for missing
    keys, for the family to describe it; `defaults`: what transformers takes for keys that are missing;
    `aliases`: older names of keys -> their names above. `adjust` changes the dimensions where renaming is not
    enough. `shared`: keys of the widths of all shared experts together and of one expert, of which a family takes whole
    multiples.
    """

    family: Family
    keys: Mapping[str, str]
    optional: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    needs: Mapping[str, Container[object]] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    shared: tuple[str, str] | None = None
    adjust: Callable[[Config, dict[str, Any]], None] = _nothing

    def renamed(self, config: Config) -> dict[str, Any]:
        """The config with its older keys by their names here."""
        return {self.aliases.get(key, key): value for key, value in config.items()}

    def beyond(self, config: Config) -> list[str]:
        """Entries of a renamed config that the family does not describe, as `key: value`."""
        entries = [key for key, good in self.needs.items() if config.get(key) not in good]
        together, one = ({**self.defaults, **config}.get(key) for key in self.shared or ("", ""))
        experts = (
            config.get("num_local_experts") != 0
        )  # Granite's models without any keep the width of the shared half
        if (
            self.shared is not None
            and experts
            and isinstance(together, int)
            and isinstance(one, int)
            and one > 0
        ):
            entries += [self.shared[0]] if together % one else []
        return [f"{key}: {config.get(key)}" for key in entries]


STACK: Mapping[str, str] = MappingProxyType(
    {
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "vocabulary": "vocab_size",
        "max_positions": "max_position_embeddings",
    }
)
"""Keys that most types share."""
