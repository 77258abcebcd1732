"""The model that `--run` or `--model` names: a run, several as an ensemble, or an exported model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nmt.cli.options import SearchOptions, changed_search, load_translator, open_model, open_run, search_settings

if TYPE_CHECKING:
    from nmt.exported import ExportedModel
    from nmt.run_dir import RunDir
    from nmt.translations import LineTranslator


ONE_RUN = "a checkpoint is of one run; give one --run."


@dataclass(frozen=True)
class Chosen:
    """The runs, or the one exported model, and what loads them to translate."""

    opened: tuple[RunDir | ExportedModel, ...]
    load: Callable[[], LineTranslator]


def choose_model(
    model: Path | None,
    runs: Sequence[Path],
    *,
    checkpoint: Path | None,
    device: str,
    int8: bool,
    search: SearchOptions,
    alignments: bool,
) -> Chosen:
    """Open the runs or the exported model, and refuse what does not go with them."""
    if model is None and len(runs) > 1:
        return _ensemble(runs, checkpoint, device, int8, search, alignments)
    if model is None:
        opened = open_run(runs[0] if runs else None)
        return Chosen(
            (opened,), lambda: load_translator(opened, checkpoint, device, search_settings(opened, search), int8)
        )
    for option, given in (("--run", bool(runs)), ("--checkpoint", checkpoint is not None)):
        if given:
            raise typer.BadParameter(f"give either --model or {option}.", param_hint=f"'{option}'")
    if device not in ("auto", "cpu"):
        raise typer.BadParameter("an exported model runs on the CPU; name a run with --run.", param_hint="'--device'")
    exported = open_model(model, int8)
    own = exported.settings
    attentive = own.kind != "none"
    return Chosen(
        (exported,), lambda: exported.translator(changed_search(exported.path, own.search, attentive, search))
    )


def _ensemble(
    runs: Sequence[Path], checkpoint: Path | None, device: str, int8: bool, search: SearchOptions, alignments: bool
) -> Chosen:
    """As `choose_model`, of several runs."""
    if checkpoint is not None:
        raise typer.BadParameter(ONE_RUN, param_hint="'--checkpoint'")
    opened = [open_run(path) for path in runs]

    def load() -> LineTranslator:
        from nmt.ensemble import load_ensemble

        settings = search_settings(opened[0], search, *opened[1:])
        return load_ensemble(opened, device=device, search=settings, int8=int8, alignments=alignments)

    return Chosen(tuple(opened), load)
