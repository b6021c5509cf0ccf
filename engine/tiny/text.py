"""The built-in tokenizer and text encoder, trained to tell the attributes of a caption."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers as tokenizer_trainers
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

from engine.tiny import vocabulary
from engine.tiny.captions import caption
from engine.tiny.runs import RunFolder, Timer, cosine
from engine.tiny.scenes import sample_scene

MAX_TOKENS = 64
VOCABULARY_SIZE = 1024
UNKNOWN = "<unk>"
SPECIAL_TOKENS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": UNKNOWN}
TEXT_CONFIG: dict[str, Any] = {
    "vocab_size": VOCABULARY_SIZE,
    "d_model": 192,
    "d_kv": 32,
    "d_ff": 384,
    "num_layers": 3,
    "num_heads": 6,
    "dropout_rate": 0.0,
    "feed_forward_proj": "gated-gelu",
    "is_encoder_decoder": False,
    "pad_token_id": 0,
    "eos_token_id": 1,
}


@dataclass(frozen=True, slots=True)
class TextPlan:
    """How the text encoder is trained; the defaults are what the shipped weights had."""

    steps: int = 700
    batch: int = 64
    tokenizer_captions: int = 20_000
    lr: float = 2e-3


def sample_captions(count: int, seed: int) -> tuple[list[str], list[dict[str, str]]]:
    """Captions of random scenes, and for each the values it names."""
    rng = random.Random(seed)
    scene_rng = np.random.default_rng(seed)
    pairs = [caption(sample_scene(scene_rng).attributes(), rng) for _ in range(count)]
    return [text for text, _ in pairs], [shown for _, shown in pairs]


def train_tokenizer(caption_count: int) -> PreTrainedTokenizerFast:
    """Lower-cased BPE over sample captions, with every printable ASCII character in reach."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"\s+"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = tokenizer_trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS.values()),
        initial_alphabet=[chr(c) for c in range(33, 127)],
        show_progress=False,
    )
    texts, _ = sample_captions(caption_count, seed=3)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **SPECIAL_TOKENS,
        model_max_length=512,
    )


class AttributeReader(nn.Module):
    """One query per attribute over the encoder's tokens, then a classifier; class 0 is unnamed."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(len(vocabulary.ATTRIBUTES), dim) * dim**-0.5)
        self.heads = nn.ModuleList(
            nn.Linear(dim, len(values) + 1) for values in vocabulary.ATTRIBUTES.values()
        )

    def forward(self, hidden: Tensor, mask: Tensor) -> list[Tensor]:
        scores = torch.einsum("btd,ad->bat", hidden, self.queries)
        weights = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9).softmax(-1)
        pooled = weights @ hidden
        return [head(pooled[:, index]) for index, head in enumerate(self.heads)]


def labels_of(shown: list[dict[str, str]]) -> Tensor:
    """Class indices (N, attributes); 0 where the caption names nothing."""
    rows = [
        [
            1 + list(values).index(s[name]) if name in s else 0
            for name, values in vocabulary.ATTRIBUTES.items()
        ]
        for s in shown
    ]
    return torch.tensor(rows)


def tokenise(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> tuple[Tensor, Tensor]:
    """Token ids and mask (N, T), padded to the longest."""
    batch = tokenizer(
        texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
    )
    return batch.input_ids, batch.attention_mask


def train_text(run: RunFolder, timer: Timer, plan: TextPlan) -> bool:
    """Train tokenizer and encoder and save both under `text/`; True when complete."""
    torch.manual_seed(5)
    tokenizer = train_tokenizer(plan.tokenizer_captions)
    encoder = UMT5EncoderModel(UMT5Config(**TEXT_CONFIG, tie_word_embeddings=True))
    reader = AttributeReader(TEXT_CONFIG["d_model"])
    parameters = [*encoder.parameters(), *reader.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=plan.lr, weight_decay=0.01)
    for step in range(plan.steps):
        if timer.is_over():
            return False
        texts, shown = sample_captions(plan.batch, seed=10_000 + step)
        ids, mask = tokenise(tokenizer, texts)
        predictions = reader(encoder(ids, attention_mask=mask).last_hidden_state, mask)
        labels = labels_of(shown)
        losses = [F.cross_entropy(p, labels[:, i]) for i, p in enumerate(predictions)]
        loss = torch.stack(losses).sum()
        for group in optimizer.param_groups:
            group["lr"] = plan.lr * cosine(step / plan.steps) * min(1.0, (step + 1) / 50)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 100 == 0 or step == plan.steps - 1:
            right = [
                float((p.argmax(-1) == labels[:, i]).float().mean())
                for i, p in enumerate(predictions)
            ]
            run.log("text", step=step, loss=float(loss.detach()), accuracy=min(right))
    save_text(run, tokenizer, encoder)
    return True


def save_text(
    run: RunFolder, tokenizer: PreTrainedTokenizerFast, encoder: UMT5EncoderModel
) -> None:
    """Keep both under `text/`."""
    folder = run.folder("text")
    tokenizer.save_pretrained(folder / "tokenizer")
    encoder.save_pretrained(folder / "text_encoder")


def load_text(run: RunFolder) -> tuple[PreTrainedTokenizerFast, UMT5EncoderModel]:
    """The trained tokenizer and encoder of a run."""
    folder = run.folder("text")
    if not (folder / "text_encoder").exists():
        raise FileNotFoundError(f"no text encoder in {folder}; train it first: --stage text")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")
    return tokenizer, UMT5EncoderModel.from_pretrained(folder / "text_encoder").eval()
