"""Two steps of every stage with small settings: they run, change the weights and resume."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import WanPipeline

from engine.tiny import vocabulary
from engine.tiny.clips import ClipCache
from engine.tiny.export import export, trained_pipeline
from engine.tiny.latents import LatentCache
from engine.tiny.restore import restore
from engine.tiny.runs import RunFolder, Timer
from engine.tiny.text import TextPlan, load_text, tokenise, train_text
from engine.tiny.transformer_training import LatentSampler, TransformerPlan, TransformerTrainer
from engine.tiny.vae_training import Phase, VaePlan, VaeTrainer

VAE_PLAN = VaePlan(
    phases=(
        Phase("frames", 1, 1, 1, None, 1.0, 0.0),
        Phase("crops", 1, 1, 5, 64, 1.0, 0.02),
    ),
    decoder_phases=(Phase("clips", 1, 1, 5, 64, 1.0, 0.05),),
    start_images=64,
)
WIDE = (8, 14)  # latent height and width of 16:9
TRANSFORMER_PLAN = TransformerPlan(batch=2, image_batch=2, compiled=False, steps=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose stages have each made their steps."""
    run = RunFolder(tmp_path_factory.mktemp("run"))
    clips = ClipCache(run.folder("clips"), shard_clips=2)
    clips.ensure(4)
    torch.manual_seed(0)
    assert VaeTrainer(run, VAE_PLAN).train(clips, Timer(None))
    assert train_text(run, Timer(None), TextPlan(steps=2, batch=4, tokenizer_captions=300))
    latents = LatentCache(run, clips)
    assert latents.extend(4, Timer(None))
    assert TransformerTrainer(run, TRANSFORMER_PLAN).train(latents, Timer(None))
    return run


def test_a_finished_plan_leaves_a_state_that_another_process_resumes(run: RunFolder) -> None:
    resumed = TransformerTrainer(run, TRANSFORMER_PLAN)
    saved = run.load("transformer")
    assert saved is not None
    assert resumed.step == 2
    assert resumed.samples == 4
    for name, value in resumed.model.state_dict().items():
        assert torch.equal(value, saved["model"][name])


def test_steps_change_the_weights_and_the_average_follows(run: RunFolder) -> None:
    state = run.load("transformer")
    assert state is not None
    out = state["model"]["proj_out.weight"]
    assert out.abs().max() > 0  # it started at zero
    assert state["average"]["weights"]["proj_out.weight"].abs().max() > 0


def test_the_decoder_stage_leaves_the_encoder_alone(run: RunFolder) -> None:
    clips = ClipCache(run.folder("clips"), shard_clips=2)
    before = run.load("vae")
    assert VaeTrainer(run, VAE_PLAN, decoder_only=True).train(clips, Timer(None))
    after = run.load("decoder")
    assert before is not None
    assert after is not None
    for name, value in before["average"]["weights"].items():
        if name.startswith(("encoder.", "quant_conv.")):
            assert torch.equal(value, after["model"][name]), name
    name = "decoder.conv_out.weight"
    assert not torch.equal(before["average"]["weights"][name], after["model"][name])


def test_cached_latents_have_the_pipelines_shape_and_unit_variance(run: RunFolder) -> None:
    cache = LatentCache(run, ClipCache(run.folder("clips"), shard_clips=2))
    height, width = vocabulary.SIZES["16:9"]
    latents, scenes = cache.load("16:9", held_out=True)
    assert latents.shape == (2, 48, 5, height // 16, width // 16)
    assert len(scenes) == 2
    assert 0.7 < float(latents.float().std()) < 1.3


def test_the_tokenizer_reads_words_it_has_never_seen(run: RunFolder) -> None:
    tokenizer, encoder = load_text(run)
    ids, mask = tokenise(tokenizer, ["A red SNEAKER", "a red sneaker", "zwölf 漢字"])
    assert torch.equal(ids[0], ids[1])
    assert int(mask[2].sum()) > 2
    hidden = encoder(ids, attention_mask=mask).last_hidden_state
    assert torch.isfinite(hidden).all()


def test_a_missing_stage_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="--stage vae"):
        VaeTrainer(RunFolder(tmp_path), VAE_PLAN, decoder_only=True)
    with pytest.raises(FileNotFoundError, match="--stage text"):
        load_text(RunFolder(tmp_path))
    with pytest.raises(FileNotFoundError, match="--stage transformer"):
        export(RunFolder(tmp_path), tmp_path / "out")


def test_time_that_is_up_stops_a_stage_and_says_so(run: RunFolder) -> None:
    timer = Timer(0)
    assert not LatentCache(run, ClipCache(run.folder("clips"), shard_clips=2)).extend(6, timer)


def test_favoured_clips_and_sizes_are_drawn_twice_as_often(run: RunFolder) -> None:
    latents = LatentCache(run, ClipCache(run.folder("clips"), shard_clips=2))
    _, scenes = latents.load("16:9", held_out=False)
    (favoured, *_) = [scene["product"] for scene in scenes]
    assert favoured is not None
    plan = replace(
        TRANSFORMER_PLAN,
        batch=64,
        image_batch=64,
        favoured_values=frozenset({favoured}),
        favoured_buckets=frozenset({"16:9"}),
    )
    sampler = LatentSampler(latents, plan, np.random.default_rng(0))
    buckets: Counter[tuple[int, ...]] = Counter()
    products: Counter[str | None] = Counter()
    for _ in range(400):
        _, batch = sampler.draw()
        shape = tuple(batch.latents.shape[-2:])
        buckets[shape] += 1
        if shape == WIDE:
            products.update(scene["product"] for scene in batch.scenes)
    assert buckets[WIDE] / 400 == pytest.approx(2 / 5, abs=0.08)
    count = sum(scene["product"] == favoured for scene in scenes)
    expected = 2 * count / (len(scenes) + count)
    assert products[favoured] / products.total() == pytest.approx(expected, abs=0.03)


def test_the_error_on_the_product_counts_more_and_the_mean_stays(run: RunFolder) -> None:
    latents = LatentCache(run, ClipCache(run.folder("clips"), shard_clips=2))
    covers = latents.load_covers("16:9")
    assert covers.shape == (2, 1, 5, *WIDE)
    assert torch.equal(covers, latents.load_covers("16:9"))
    plan = replace(TRANSFORMER_PLAN, product_weight=3.0)
    sampler = LatentSampler(latents, plan, np.random.default_rng(0))
    for _ in range(10):
        _, batch = sampler.draw()
        assert batch.weights is not None
        assert batch.weights.shape == (2, 1, *batch.latents.shape[2:])
        assert float(batch.weights.mean()) == pytest.approx(1.0)
        assert float(batch.weights.max() / batch.weights.min()) == pytest.approx(4.0, rel=0.01)


def test_cooling_down_keeps_the_run_as_it_was_and_is_what_gets_exported(
    run: RunFolder, tmp_path: Path
) -> None:
    before = run.load("transformer")
    latents = LatentCache(run, ClipCache(run.folder("clips"), shard_clips=2))
    trainer = TransformerTrainer(run, TRANSFORMER_PLAN, cool_down=2)
    rates = []
    for _ in range(2):
        trainer._set_rate()
        rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        trainer.step += 1
    assert rates[1] < rates[0]
    assert TransformerTrainer(run, TRANSFORMER_PLAN, cool_down=2).train(latents, Timer(None))
    after, cooled = run.load("transformer"), run.load("cooled")
    assert before is not None
    assert after is not None
    assert cooled is not None
    assert (before["step"], after["step"], cooled["step"]) == (2, 2, 4)
    weights = trained_pipeline(run).transformer.state_dict()
    assert torch.equal(weights["proj_out.weight"], cooled["average"]["weights"]["proj_out.weight"])
    run.state_path("cooled").unlink()


def test_an_exported_checkpoint_loads_and_starts_another_run(
    run: RunFolder, tmp_path: Path
) -> None:
    assert export(run, tmp_path / "weights") < 32 * 1024 * 1024
    pipeline = WanPipeline.from_pretrained(tmp_path / "weights", local_files_only=True)
    assert {p.dtype for p in pipeline.text_encoder.parameters()} == {torch.float32}
    other = RunFolder(tmp_path / "other")
    restore(other, tmp_path / "weights")
    saved, kept = run.load("transformer"), other.load("transformer")
    assert saved is not None
    assert kept is not None
    for name, value in saved["average"]["weights"].items():
        assert torch.allclose(kept["model"][name], value, atol=1e-3), name
    vae = VaeTrainer(other, VaePlan())
    assert vae.phase_at(vae.step) is None
    with pytest.raises(FileExistsError, match="already holds a run"):
        restore(other, tmp_path / "weights")
