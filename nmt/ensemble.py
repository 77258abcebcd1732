"""Translation with several runs at once, whose models agree on each word by the mean of their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.config import Config, SearchConfig
from nmt.errors import NmtError
from nmt.model.ensemble_stepper import EnsembleStepper
from nmt.run_dir import RunDir
from nmt.translate import Translator
from nmt.translations import LineTranslator


class Ensemble(LineTranslator):
    """The translators of several runs as one; `members` are they, in order."""

    def __init__(self, members: Sequence[Translator], search: SearchConfig, alignment_shift: int) -> None:
        self.members = tuple(members)
        first = self.members[0]
        stepper = EnsembleStepper([member.stepper for member in members])
        super().__init__(stepper, first.tokenizers, search, first.max_source, alignment_shift)


def load_ensemble(
    runs: Sequence[RunDir], *, device: str, search: SearchConfig, int8: bool = False, alignments: bool = False
) -> Ensemble:
    """The translator of the best checkpoints of several runs; the first one's says how much of a source is read.

    With `alignments` the attention weights are to link words. Raises as `Translator.load` does for each run.

    Raises:
        NmtError: if the runs are of different languages or vocabularies, or their weights link words differently.
    """
    configs = [run.settings() for run in runs]
    for run, config in zip(runs[1:], configs[1:], strict=True):
        _refuse_strangers(runs[0], run, configs[0], config)
    shifts = _shifts(runs, configs)
    if alignments and len(shifts) > 1:
        (shift, run), (other, another) = list(shifts.items())[:2]
        raise NmtError(
            f"{run.path} and {another.path}: the weights of the one link words with training.alignment_shift {shift}, "
            f"those of the other with {other}: their mean links nothing. Use --format text, or runs of one shift."
        )
    members = [Translator.load(run, device=device, search=search, int8=int8) for run in runs]
    return Ensemble(members, search, next(iter(shifts), 0))


def _refuse_strangers(first: RunDir, other: RunDir, config: Config, others: Config) -> None:
    """Refuses a run whose words are not those of the first: neither their languages nor their ids."""
    ours, theirs = ((data.src_lang, data.tgt_lang) for data in (config.data, others.data))
    if ours != theirs:
        raise NmtError(
            f"{first.path} translates {ours[0]} to {ours[1]}, and {other.path} {theirs[0]} to {theirs[1]}: the runs of "
            "an ensemble translate the same way."
        )
    if _vocabulary(first) != _vocabulary(other):
        raise NmtError(
            f"{first.path} and {other.path}: their SentencePiece models differ, and the runs of an ensemble share a "
            "vocabulary. Train both on the same training data with the same settings of tokenizer."
        )


def _vocabulary(run: RunDir) -> dict[str, bytes]:
    """The SentencePiece models of a run, byte for byte."""
    try:
        return {file.name: file.read_bytes() for file in run.tokenizer.glob("*.model")}
    except OSError as error:
        raise NmtError(f"{error.filename}: cannot be read: {error.strerror}.") from error


def _shifts(runs: Sequence[RunDir], configs: Sequence[Config]) -> dict[int, RunDir]:
    """The alignment shifts of the models that attend, in order, each with the first run that has it."""
    shifts: dict[int, RunDir] = {}
    for run, config in zip(runs, configs, strict=True):
        if config.model.decoder.kind != "none":
            shifts.setdefault(config.training.alignment_shift, run)
    return shifts
