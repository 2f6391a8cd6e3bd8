"""What ``gnnforce info`` says about a model."""

from pathlib import Path
from typing import Any

from ase.data import chemical_symbols

from gnnforce.cli.console import print_errors, print_pairs, print_table
from gnnforce.models.checkpoint import load, read
from gnnforce.models.heads import default_head


def describe_model(path: Path) -> dict[str, Any]:
    """Put a model file into plain values.

    Args:
        path: A model file.

    Returns:
        Architecture, elements, cutoff (Angstrom), heads, energies of isolated atoms and
        scales (eV) by head and element symbol, units, dtype, number of parameters,
        versions that wrote it, and the training provenance.

    Raises:
        ModelFileError: For a file that is no model.
    """
    model, content = load(path), read(path)
    backbone = content["backbone"]
    return {
        "file": path,
        "format_version": content["format_version"],
        "architecture": backbone["name"],
        "architecture_arguments": backbone["arguments"],
        "repulsion": content["repulsion"],
        "elements": _symbols(model.elements),
        "cutoff": model.cutoff,
        "default_head": default_head(model),
        "heads": [head.arguments() for head in model.heads],
        "n_outputs": model.n_outputs,
        "references": _by_symbol(model.references()),
        "scales": _by_symbol(model.scales()),
        "units": content["units"],
        "dtype": content["dtype"],
        "parameters": sum(p.numel() for p in model.parameters()),
        "versions": content["versions"],
        "metadata": model.metadata,
    }


def print_model(report: dict[str, Any]) -> None:
    """Print a report of :func:`describe_model` for people."""
    arguments = report["architecture_arguments"]
    size = ", ".join(f"{k} {v}" for k, v in arguments.items() if k != "elements")
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    units = ", ".join(f"{k} {v}" for k, v in report["units"].items())
    print_pairs(
        {
            "model": f"{report['file']} (format {report['format_version']})",
            "architecture": f"{report['architecture']} ({size})",
            "repulsion": "ZBL" if report["repulsion"] else "none",
            "elements": " ".join(report["elements"]),
            "cutoff": f"{report['cutoff']:g} Å",
            "parameters": f"{report['parameters']:,}",
            "precision": report["dtype"],
            "units": units,
            "written by": versions,
        }
    )
    print()
    _print_heads(report)
    _print_provenance(report["metadata"])


def _print_heads(report: dict[str, Any]) -> None:
    symbols = report["elements"]
    rows = []
    for head in report["heads"]:
        energies = report["references"][head["name"]]
        marked = " (default)" if head["name"] == report["default_head"] else ""
        e0 = [f"{energies[s]:.4f}" if s in energies else "-" for s in symbols]
        rows.append([head["name"] + marked, head["members"], head["kind"], *e0])
    print_table(["head", "members", "kind", *(f"E0({s}) eV" for s in symbols)], rows)


def _print_provenance(metadata: dict[str, Any]) -> None:
    """Print what is known of the training; its configuration is left to ``--json``."""
    run = metadata.get("training")
    run = run if isinstance(run, dict) else {}
    validation = run.get("validation")
    left_out = {key: run[key] for key in ("config", "validation") if key in run}
    shown = {key: value for key, value in run.items() if key not in left_out}
    pairs = _flat(metadata | ({"training": shown} if run else {}))
    if pairs:
        print()
        print_pairs(pairs)
    if validation:
        print("\nvalidation errors")
        print_errors(validation)
    if "config" in run:
        print("\nThe configuration of the training is in the output of --json.")


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values under dotted names."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, dict) and value
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if nested else {name: value}
    return flat


def _symbols(numbers: list[int]) -> list[str]:
    return [chemical_symbols[number] for number in numbers]


def _by_symbol(table: dict[str, dict[int, float]]) -> dict[str, dict[str, float]]:
    return {
        head: {chemical_symbols[z]: value for z, value in values.items()}
        for head, values in table.items()
    }
