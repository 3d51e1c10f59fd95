"""A record as one row of a table: its facts, then a column for each metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reports import ReportError
from reports.storage.migration import overrides_of

_MAYBE = (int, float, type(None))
FACTS = (
    "dataset", "split", "kind", "frd", "method", "family", "seed", "protocol", "backbone", "source", "identity",
    "path", "iteration", "frd_class_means_released", "frd_equal_n", "dataset_hash", "contents", "split_hash",
    "train_classes", "test_classes",
    "train_images", "test_images", "ladder", "parts", "members", "weights", "papers", "tags", "summary", "cite",
    "settings", "trains", "trainable_parameters", "total_parameters", "protocol_settings", "chosen_epochs", "curve",
    "queries", "left_out", "device", "date", "commit", "dirty", "version", "command", "overrides",
    "domains_of", "spectra", "thresholds", "backbone_facts", "ladder_name", "ladder_hash", "ladder_since",
    "level", "card",
)
SPECTRA = ("spectrum", "spectrum_class")
"""Of a side's structure the normalised singular values, [rank, value], of all embeddings and of classes on average."""


def row_of(record: dict[str, Any], path: Path, shared: dict[str, Any]) -> dict[str, Any]:
    """The columns of a checked record; `shared` keeps what many records have in common.

    A ReportError where its provenance is damaged.
    """

    def one(value: Any) -> Any:  # ten thousand records share a few ladders and settings: keep one object of each
        return shared.setdefault(repr(value), value)

    split, method, made = record["split"], record["method"], record["provenance"]
    row = {
        "dataset": record["dataset"], "split": split["id"], "kind": split["kind"], "frd": split["frd"],
        "method": method["name"], "family": method["family"], "seed": record["seed"],
        "protocol": record["protocol"]["name"], "backbone": record["backbone"]["name"], "source": record["source"],
        "identity": record["identity"], "path": str(path), "split_hash": split["hash"],
        "dataset_hash": record["dataset_hash"], "contents": record.get("contents"),
        "weights": record["backbone"]["weights"],
        "ladder": one(tuple((int(i), float(frd)) for i, frd in split["ladder"])),
        "parts": one(split.get("parts")), "members": one(tuple(record["domains"])),
        "protocol_settings": one(record["protocol"]),
        "chosen_epochs": one(record["chosen_epochs"]), "curve": record["curve"],
        "queries": record["queries"]["count"], "left_out": record["queries"]["left_out"],
        "device": None if record["cost"].get("device") is None else str(record["cost"]["device"]),
    }
    row |= {key: split[key] for key in ("iteration", "frd_class_means_released", "train_classes", "test_classes",
                                        "train_images", "test_images")}
    row["frd_equal_n"] = split.get("frd_equal_n")
    row |= {key: one(method[key]) for key in ("papers", "tags", "summary", "cite", "settings", "trains",
                                              "trainable_parameters", "total_parameters")}
    row |= {key: None if made.get(key) is None else str(made[key]) for key in ("date", "commit", "version", "command")}
    row["dirty"], row["ladder_since"] = made.get("dirty"), split.get("since")
    row["card"] = made.get("card") if isinstance(made.get("card"), dict) else None
    row["level"] = selected_level(record["source"], made.get("level"))
    row |= {f"ladder_{key}": split.get("pinned", {}).get(key) for key in ("name", "hash")}
    # before provenance said so, an ensemble of dataset-specific models was scored on every dataset itself
    row["domains_of"] = made.get("domains") or ("ensemble" if "ensemble" in method["tags"] else None)
    changed = made["overrides"] if "overrides" in made else overrides_of(
        record["source"], str(made.get("command") or ""))
    if changed is not None and not (isinstance(changed, dict) and all(
            isinstance(pair, list) and len(pair) == 2 for pair in changed.values())):
        raise ReportError("provenance.overrides is no table of pairs: the value of the protocol and that of the run")
    row["overrides"] = one(changed)
    for rule, scores in record["scores"].items():
        row |= scores if rule == "last" else {f"{rule}:{metric}": value for metric, value in scores.items()}
    for domain, scores in record["domains"].items():
        row |= {f"domain:{domain}:{metric}": value for metric, value in scores.items()}
    for side, values in record["structure"].items():
        row |= {f"structure:{side}:{name}": v for name, v in (values or {}).items() if isinstance(v, _MAYBE)}
    row["spectra"] = {side: {name: values[name] for name in SPECTRA if name in (values or {})}
                      for side, values in record["structure"].items()}
    row["thresholds"], row["backbone_facts"] = record.get("thresholds"), one(record["backbone"].get("facts"))
    return row | {f"cost:{name}": value for name, value in record["cost"].items() if isinstance(value, _MAYBE)}


LEVELS = {"reported": "a number that a paper prints",
          "recomputed": "scores computed here from the submitted outcome of every query",
          "re-embedded": "scores computed here from submitted embeddings",
          "run here": "trained by this suite"}
"""How far a result was followed here, from the least to the most, with what each means."""


def selected_level(source: str, told: Any = None) -> str:
    """The level of a record of this source; what was submitted tells its own.

    >>> selected_level("run"), selected_level("published"), selected_level("submitted", "recomputed")
    ('run here', 'reported', 'recomputed')
    """
    known = {"run": "run here", "published": "reported"}
    return known.get(source) or (str(told) if told in ("recomputed", "re-embedded") else "re-embedded")


def is_gpu(device: str) -> bool:
    """Whether a device of this name, as records have it, is a GPU.

    >>> is_gpu("NVIDIA H200"), is_gpu("AMD EPYC 9654")
    (True, False)
    """
    return any(name in device for name in ("NVIDIA", "GeForce", "Tesla", "Quadro", "AMD Instinct", "Radeon"))
