"""Scopes and the attention that excluded tokens receive, by layer.

    python -m experiments.scopes heads=FOLDER trained=FOLDER --out FOLDER

writes ``scopes.json`` and ``scopes.md``; ``--unseen`` measures on wordings that
training has not. ``python -m experiments run --keep`` leaves the models of systems.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from accelerate.utils import send_to_device

from boolattn.cli.explain import load_query_encoder
from boolattn.data.sentences import HELD_OUT_SEED, Mixture, Sentence, generate
from boolattn.errors import BoolattnError
from boolattn.evaluation.tables import markdown, short
from boolattn.files import write_text
from boolattn.plugin.backend import BACKENDS, recording
from boolattn.plugin.install import plugin_of
from boolattn.training.batches.tokens import LabelledSentences
from boolattn.training.pretrain import f1, token_counts

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.attention.layer import BoolAttnLayer

    #: By name: a value for each layer.
    Measured = dict[str, list[float]]

N_SENTENCES = 200
_AT_ONCE = 50
_TITLES = {
    "scope_f1": "scope F1, all operators",
    "scope_f1_not": "scope F1 of NOT",
    "attention": "change of the attention that excluded tokens receive",
    "threshold": "scope threshold of NOT",
}


def held_out_sentences(*, unseen: bool = False) -> list[Sentence]:
    """Return generated sentences with a NOT that no training saw, also in unseen wordings."""
    every = generate(10 * N_SENTENCES, HELD_OUT_SEED, Mixture(unseen=unseen))
    return [sentence for sentence in every if "not" in sentence.operators][:N_SENTENCES]


@torch.inference_mode()
def measure_scopes(
    encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sentence]
) -> Measured:
    """Measure scopes and attention by layer, with oracle labels.

    Attention is the relative change, by the layer's own bias, of the share of attention that the
    tokens in the labelled scope of NOT receive, mean over heads and tokens.
    """
    plugin = plugin_of(encoder)
    names, is_bounded = plugin.config.operators, plugin.config.bounded_scope
    labelled = LabelledSentences(sentences, tokenizer)
    layers = [int(name) for name in plugin.layers]
    counts = {layer: torch.zeros(3, len(names)) for layer in layers}
    received = {layer: torch.zeros(2, dtype=torch.float64) for layer in layers}
    cast("PreTrainedModel", encoder.eval().base_model).set_attn_implementation(BACKENDS["eager"])
    for rows in torch.arange(len(sentences)).split(_AT_ONCE):
        part = send_to_device(labelled.batch(rows.tolist()), encoder.device)
        with recording() as record:
            output = encoder(**part.features, operators=part.operators, output_attentions=True)
        used = part.mask[:, None] * part.operators[..., None]
        excluded = part.scopes[:, names.index("not")]
        for index, layer in record.biases.items():
            for head in layer.inside.unbind(-1):
                counts[index] += token_counts(head.transpose(1, 2), part.scopes, used)
            after = output.attentions[index]
            pair = (layer.attention_before(after), after.double())
            # From all tokens, mean over heads.
            by_key = [(weights.mean(1) * part.mask[:, :, None]).sum(1) for weights in pair]
            received[index] += torch.stack([(key * excluded).sum() for key in by_key]).cpu()
    measured: Measured = {name: [] for name in _TITLES}
    for index in layers:
        before, after = received[index].tolist()
        raw = cast("BoolAttnLayer", plugin.layers[str(index)]).scope.threshold[names.index("not")]
        measured["scope_f1"].append(f1(counts[index].sum(1)))
        measured["scope_f1_not"].append(f1(counts[index][:, names.index("not")]))
        measured["attention"].append(after / before - 1 if before else 0.0)
        measured["threshold"].append(float(torch.sigmoid(raw) if is_bounded else raw))
    return measured


def report(measured: Mapping[str, Measured], out: Path) -> str:
    """Write JSON and a table of means over layers; return the table."""
    heads = ["model", *_TITLES.values(), "layers where excluded tokens receive more"]
    rows = []
    for name, values in measured.items():
        means = {key: sum(row) / len(row) for key, row in values.items()}
        n_more = sum(change > 0 for change in values["attention"])
        change = f"{100 * means.pop('attention'):+.1f}%"
        cells = [short(value) for value in means.values()]
        rows.append([name, *cells[:2], change, cells[2], f"{n_more} of {len(values['attention'])}"])
    text = markdown(heads, rows)
    for name, written in (("scopes.json", json.dumps(measured, indent=1)), ("scopes.md", text)):
        write_text(out / name, written + "\n")
    return text


def measure(models: Mapping[str, Path], *, unseen: bool = False) -> dict[str, Measured]:
    """Measure models by name."""
    sentences = held_out_sentences(unseen=unseen)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    measured = {}
    for name, home in models.items():
        encoder, tokenizer = load_query_encoder(home)
        measured[name] = measure_scopes(encoder.to(device), tokenizer, sentences)  # type: ignore[arg-type]
    return measured


def main(argv: Sequence[str] | None = None) -> int:
    """Measure models; the table goes to stdout."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.scopes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--unseen", action="store_true", help="on unseen wordings")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    pairs = (model.partition("=") for model in options.models)
    models = {name: Path(folder) for name, _, folder in pairs}
    try:
        text = report(measure(models, unseen=options.unseen), options.out)
    except BoolattnError as error:
        sys.stderr.write(f"experiments.scopes: {error}\n")
        return 2
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
