"""Hugging Face models by their `config.json`, without transformers and without weights.

Types that a family describes exactly are translated here; all others are left to `build.py`, which builds the
model itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phaze.errors import InputError
from phaze.workload.hugging_face.table import ACTIVATIONS, TRANSLATIONS, Translation

Config = Mapping[str, Any]


def config_file(source: str) -> Path:
    """The `config.json` behind a path to it or to the folder that holds it."""
    path = Path(source)
    return path / "config.json" if path.is_dir() else path


def read_config(source: str) -> dict[str, Any]:
    """Read a `config.json`. Raises InputError for a file that is missing, no JSON, or names no `model_type`."""
    path = config_file(source)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"{path}: no such file (hf: takes a config.json or a folder that holds one)"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise InputError(f"{path}: model_type is missing: not the config of a Hugging Face model")
    return config


def translate(config: Config, where: str) -> dict[str, Any] | None:
    """Content of a workload file that describes the same model; None where no family does exactly.

    `where` names the config in errors. Raises InputError for keys that are missing (all of them at once) and
    an activation that is unknown.
    """
    entry = TRANSLATIONS.get(config["model_type"])
    if entry is None or not _describes(entry, config):
        return None
    missing = [key for key in entry.keys.values() if config.get(key) is None]
    if missing:
        raise InputError(f"{where}: model_type {config['model_type']} needs {', '.join(missing)}")
    known = {**entry.defaults, **{key: value for key, value in config.items() if value is not None}}
    dimensions = {**entry.fixed, **{name: known[key] for name, key in entry.keys.items()}}
    dimensions |= {name: known[key] for name, key in entry.optional.items() if key in known}
    _adjust(config, dimensions, where)
    return {
        "schema_version": 1,
        "name": config_name(config, where),
        "family": entry.family.value,
        "source": {"dimensions": where},
        "dimensions": dimensions,
        "sequence_length": dimensions["max_positions"],
    }


def _describes(entry: Translation, config: Config) -> bool:
    """Whether the family has everything that this config asks for."""
    return all(config.get(key) in values for key, values in entry.needs.items())


def _adjust(config: Config, dimensions: dict[str, Any], where: str) -> None:
    """What is no plain renaming."""
    activation = dimensions["activation"]
    if activation not in ACTIVATIONS:
        listed = ", ".join(sorted(ACTIVATIONS))
        raise InputError(f"{where}: activation {activation!r} is not known (known: {listed})")
    dimensions["activation"] = ACTIVATIONS[activation]
    if config["model_type"] == "opt":  # two rows before the first position; the 350M model has no final norm
        dimensions["position_rows"] = dimensions["max_positions"] + 2
        dimensions["norm_place"] = "pre" if config.get("do_layer_norm_before", True) else "post"
        dimensions["final_norm"] = bool(config.get("do_layer_norm_before", True))
    if config["model_type"] == "roberta":  # positions count from the padding id + 1, which is 2
        dimensions["position_rows"] = dimensions["max_positions"]
        dimensions["max_positions"] -= 2


def config_name(config: Config, where: str) -> str:
    """Name of the model: its own path's last part, the folder it lies in, or its type."""
    given = str(config.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    folder = Path(where).resolve().parent.name
    name = given or folder or config["model_type"]
    return (
        "".join(c if c.isalnum() or c in "._-" else "-" for c in name).lstrip("._-") or config["model_type"]
    )
