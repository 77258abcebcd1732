"""What happens when numbers overflow: updates that are left out, and the end of a training that has diverged."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor

from nmt.config import TrainingConfig
from nmt.data.batching import Indices, TrainingBatches
from nmt.errors import NmtError
from nmt.reporting import Reporter
from nmt.run_dir import RunDir, write_atomic
from nmt.training.readings import Measured, Update
from nmt.training.state import TrainingState

MAX_SKIPPED = 3  # updates in a row with a gradient or a loss that is not finite
_SHOWN = 5  # pairs of a batch


class Divergence:
    """Counts the updates that were left out, and gives up when there is no going on."""

    def __init__(
        self, run: RunDir, batches: TrainingBatches, config: TrainingConfig, reporter: Reporter, *, writes: bool = True
    ) -> None:  # fmt: skip
        self.run, self.batches, self.config, self.reporter, self.writes = run, batches, config, reporter, writes

    def skip(self, state: TrainingState, update: Update, measured: Measured) -> None:
        """Tells of an update that was left out.

        Raises:
            NmtError: at the third in a row; the batch's text is then in the run's `failed_batch.tsv`.
        """
        state.skipped += 1
        state.skipped_in_a_row += 1
        values = {"gradient": measured.norm, "loss": measured.loss + measured.likelihood + measured.alignment}
        found = " and ".join(f"the {name} is {value}" for name, value in values.items() if not math.isfinite(value))
        pairs = ", ".join(str(pair + 1) for pair in update.pairs[:_SHOWN].tolist())
        more = ", …" if len(update.pairs) > _SHOWN else ""
        what = f"step {update.step}: {found} (batch of {len(update.pairs)} pairs: {pairs}{more} of those kept"
        if state.skipped_in_a_row < MAX_SKIPPED:
            self.reporter.warning(f"{what}); this update is left out.")
            return
        if self.writes:
            self._keep(update.pairs)
        raise NmtError(
            f"{what}; their text is in {self.run.failed_batch}), {MAX_SKIPPED} times in a row. {self._advice()}"
        )

    def _keep(self, pairs: Indices) -> None:
        """Writes the pairs down: a wrong one is easier to see than to imagine."""
        corpus = self.batches.corpus
        rows = ((pair + 1, corpus.src_text(pair), corpus.tgt_text(pair)) for pair in pairs.tolist())
        write_atomic(self.run.failed_batch, "".join(f"{number}\t{src}\t{tgt}\n" for number, src, tgt in rows))

    def refuse_broken(self, state: TrainingState, weights: Iterable[Tensor]) -> None:
        """Keeps weights that are no numbers out of checkpoints and validations.

        Raises:
            NmtError: if there is one that is not finite.
        """
        if not all(bool(tensor.isfinite().all()) for tensor in weights):
            raise NmtError(f"step {state.step}: weights are not finite any more, so nothing is saved. {self._advice()}")

    def refuse_loss(self, state: TrainingState, loss: float) -> None:
        """Keeps weights that are numbers, but too large to compute with, out of checkpoints.

        Raises:
            NmtError: if the loss of the development set is not finite.
        """
        if not math.isfinite(loss):
            raise NmtError(
                f"step {state.step}: the development set's loss is {loss}; nothing is saved. {self._advice()}"
            )

    def _advice(self) -> str:
        rate, clip = self.config.optimizer.learning_rate, self.config.clip_norm
        there = self.run.last.is_file()
        again = (
            f" If it diverges again, name an older one of {self.run.checkpoints} with --checkpoint." if there else ""
        )
        return (
            f"Training has diverged: lower training.optimizer.learning_rate (now {rate:g}) or training.clip_norm (now "
            f"{clip:g}), and {'go on from the last checkpoint' if there else 'begin again'}: nmt train --resume "
            f"--run-dir {self.run.quoted} --set training.optimizer.learning_rate={rate / 2:g}.{again}"
        )
