"""One matrix for embeddings and output: it is one, learns from every place where it stands, and is kept as one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from models import VOCABULARY, small_batch, small_model
from torch import Tensor
from updates import first_batch, training_of, update

from nmt.average import average_checkpoints
from nmt.config import BahdanauConfig, EncoderConfig, ModelConfig, Tying
from nmt.errors import NmtError
from nmt.model.seq2seq import Seq2Seq, build_model, trainable_parameters
from nmt.reporting import SilentReporter
from nmt.training import loop, loss
from nmt.training.checkpoint import load_checkpoint, save_checkpoint
from nmt.training.loop import Training
from nmt.translate import restore_weights

PLACES: dict[Tying, tuple[str, ...]] = {
    "target": ("tgt_embedding", "output"),
    True: ("src_embedding", "tgt_embedding", "output"),
}
# With how many words in the source's vocabulary: as many as in the target's where both are one.
CASES: list[tuple[Tying, int]] = [(True, VOCABULARY), ("target", VOCABULARY), ("target", VOCABULARY + 6)]
each_case = pytest.mark.parametrize(("tying", "words"), CASES)


def made(tying: Tying, words: int = VOCABULARY, seed: int = 1) -> Seq2Seq:
    """A model in float64 whose parts have the same shapes, tied or not: the decoder is as large as the embeddings."""
    torch.manual_seed(seed)
    decoder = BahdanauConfig(hidden_size=6, attention_size=5)
    config = ModelConfig(
        embedding_size=6, dropout=0.1, encoder=EncoderConfig(hidden_size=4), decoder=decoder, tie_embeddings=tying
    )
    return build_model(config, words, VOCABULARY).double()


def untied_copy(model: Seq2Seq, words: int) -> Seq2Seq:
    copy = made(False, words)
    copy.load_state_dict(model.state_dict())
    return copy


def matrices(model: Seq2Seq, tying: Tying) -> list[torch.nn.Parameter]:
    return [model.get_parameter(f"{name}.weight") for name in PLACES[tying]]


@pytest.mark.parametrize("tying", PLACES)
@pytest.mark.parametrize("name", ["bahdanau", "bahdanau-maxout", "luong-general", "luong-feed"])
def test_tied_places_hold_one_parameter_and_the_others_their_own(name: str, tying: Tying) -> None:
    model = small_model(name, tie_embeddings=tying)
    assert len({id(matrix) for matrix in matrices(model, tying)}) == 1
    assert (model.src_embedding.weight is model.output.weight) == (tying is True)
    assert len(trainable_parameters(model)) == len(model.state_dict()) - len(PLACES[tying]) + 1
    assert model(*small_batch())[0].shape == (3, 5, 7)


@pytest.mark.parametrize("tying", PLACES)
def test_the_one_matrix_starts_as_an_embedding(tying: Tying) -> None:
    torch.manual_seed(1)
    model = build_model(ModelConfig(embedding_size=64, tie_embeddings=tying), 2000, 2000)
    for matrix in (model.src_embedding.weight, model.output.weight):
        assert float(matrix.detach().std()) == pytest.approx(64**-0.5, rel=0.02)


def gradients(model: Seq2Seq, *, plain: bool) -> dict[str, Tensor]:
    """Those of training's loss of a small batch, or of torch's own, by every name of a parameter."""
    torch.manual_seed(5)
    readouts_NR = model(*small_batch())[0].flatten(0, 1)
    targets_N, output = torch.arange(15) % VOCABULARY, model.output
    if plain:
        cross_entropy = torch.nn.functional.cross_entropy
        cross_entropy(output(readouts_NR), targets_N, reduction="sum", label_smoothing=0.1).backward()  # type: ignore[no-untyped-call]
    else:
        loss.token_losses(readouts_NR, output.weight, output.bias, targets_N, 0.1).loss.backward()  # type: ignore[no-untyped-call]
    return {name: p.grad for name, p in model.named_parameters(remove_duplicate=False) if p.grad is not None}


@each_case
@pytest.mark.parametrize("chunk", [4, 1000])
def test_the_gradient_of_the_one_matrix_is_the_sum_of_those_of_its_places(
    tying: Tying, words: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "CHUNK", chunk)
    tied = made(tying, words)
    alone, together = gradients(untied_copy(tied, words), plain=True), gradients(tied, plain=False)
    places = [f"{name}.weight" for name in PLACES[tying]]
    assert all(alone[name].abs().max() > 1e-3 for name in places)
    expected = alone | dict.fromkeys(places, torch.stack([alone[name] for name in places]).sum(0))
    assert together.keys() == expected.keys()
    for name, gradient in together.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-12, atol=1e-12)


@each_case
@pytest.mark.parametrize("r_drop", [0.0, 1.0])
def test_updates_are_those_of_an_untied_model_whose_gradients_are_added_by_hand(
    tmp_path: Path, tying: Tying, words: int, r_drop: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(model: Seq2Seq, folder: Path) -> Training:
        training = training_of(folder, "bahdanau", model=model, r_drop=r_drop)
        for _ in range(4):
            update(training, first_batch(training))
        return training

    tied = made(tying, words)
    untied, clip = untied_copy(tied, words), loop.clip_gradients
    first, *others = matrices(untied, tying)

    def added(parameters: list[torch.nn.Parameter], max_norm: float) -> Tensor:
        first.grad = torch.stack([place.grad for place in (first, *others) if place.grad is not None]).sum(0)
        norm = clip([each for each in parameters if all(each is not other for other in others)], max_norm)
        for other in others:
            other.grad = first.grad.clone()
        return norm

    start = tied.output.weight.detach().clone()
    found = trained(tied, tmp_path / "tied").checkpoint()["model"]
    monkeypatch.setattr(loop, "clip_gradients", added)
    expected = trained(untied, tmp_path / "untied").checkpoint()["model"]
    assert found.keys() == expected.keys()
    for name, average in found.items():
        torch.testing.assert_close(average, expected[name], rtol=1e-8, atol=1e-8)
    assert (found["output.weight"] - start).abs().max() > 1e-3


@each_case
def test_a_checkpoint_or_a_mean_of_some_gives_the_one_matrix_back(tmp_path: Path, tying: Tying, words: int) -> None:
    training = training_of(tmp_path, "bahdanau", model=made(tying, words))
    for step in (1, 2):
        update(training, first_batch(training))
        save_checkpoint(training.run, step, training.checkpoint(), best=step == 2, keep=2)
    (training.run.tokenizer / "joint.model").write_bytes(b"pieces")
    average = average_checkpoints(training.run, SilentReporter()).path
    for path in (training.run.last, average):
        weights = load_checkpoint(path)["model"]
        model = made(tying, words, seed=2)
        restore_weights(model, weights, path)
        assert len({id(matrix) for matrix in matrices(model, tying)}) == 1
        assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    resumed = training_of(tmp_path / "resumed", "bahdanau", model=made(tying, words, seed=2))
    resumed.restore(load_checkpoint(training.run.last))
    for one, other in zip(resumed.parameters, training.parameters, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("tying", "others"), [(True, False), (True, "target"), ("target", False)])
def test_weights_of_a_model_that_shares_less_are_refused(tying: Tying, others: Tying) -> None:
    weights = made(others).state_dict()
    with pytest.raises(NmtError, match=r"x\.pt: its \w+\.weight and \w+\.weight differ.*model\.tie_embeddings.*one"):
        restore_weights(made(tying), weights, Path("x.pt"))


def test_weights_of_a_model_that_shares_more_are_taken_and_equal_copies_too() -> None:
    weights = {name: tensor.clone() for name, tensor in made(True).state_dict().items()}
    weights["output.weight"][0] = weights["tgt_embedding.weight"][0] = weights["src_embedding.weight"][0] = torch.nan
    for tying in (True, "target", False):
        restore_weights(made(tying, seed=2), weights, Path("x.pt"))
