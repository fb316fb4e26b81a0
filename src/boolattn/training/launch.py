"""One run from a preset: data, model, batches, training and saving."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from boolattn.data.catalog import Options, open_dataset
from boolattn.data.labelled_queries import label_queries, read_labelled_queries
from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.errors import ConfigError
from boolattn.files import text_hash
from boolattn.plugin import attach, save
from boolattn.training.batches.sampling import Collator, Sampler, Steps, make_examples
from boolattn.training.batches.sentences import PretrainingSet, ScopeSentences
from boolattn.training.batches.tokens import Tokens
from boolattn.training.corpus import Corpus, label_operators, read_rankings
from boolattn.training.parser import HELD_OUT
from boolattn.training.post.gate import train_gate
from boolattn.training.preset_files import load_preset
from boolattn.training.pretrain import Pretrainer
from boolattn.training.retrieval.trainer import Job
from boolattn.training.retrieval.training import Result, release_memory, require_gpu, train_towers
from boolattn.training.run_folder import RunFolder, data_hashes, save_model
from boolattn.training.towers import freeze, load_encoder, make_towers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from boolattn.data.records import Dataset
    from boolattn.training.batches.sampling import Example
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Where a run reads and writes."""

    out: Path  # The run's folder
    data: Path | None = None  # Folder of the data set, or of SetBERT's files to pretrain on
    pretrained: Path | None = None  # Initial weights: ``model`` of a pretraining or a training
    rankings: Path | None = None  # A ranking of the training queries: a TREC run, or JSON
    parser_queries: Path | None = None  # File of labelled queries, for post-training
    resume: bool = False  # Continue a run that was interrupted
    show_progress: bool = False
    command: str = ""  # As typed, for ``run.json`` and the model card


def run_command(verb: str, preset: str, changes: Sequence[str], launch: Launch) -> dict[str, Any]:
    """Run "pretrain", "train" or "post-train" with a preset; return what is printed."""
    first = {"pretrain": "pretrain", "train": "train"}.get(verb, "post")
    settings = load_preset(preset, changes, first=first)
    if verb == "train":
        result = train(settings, launch)
        return {"model": str(result.model), "steps": result.n_steps, **result.metrics}
    run = pretrain if verb == "pretrain" else post_train
    return {"model": str(launch.out / "model"), **run(settings, launch)}


def pretrain(preset: Preset, launch: Launch) -> dict[str, float]:
    """Pretrain the heads of a plug-in, save it with its encoder, return metrics of the heads."""
    require_gpu(preset)
    run = RunFolder(launch.out)
    data, given = {"name": "sentences"}, None
    if launch.data is not None:
        given = PretrainingSet.setbert(launch.data, preset.pretrain)
        data = {"name": "setbert", "train": text_hash((one.text,) for one in given.sentences)}
    run.open(preset, data, kind="pretrain", command=launch.command, resume=launch.resume)
    torch.manual_seed(preset.pretrain.seed)
    encoder, tokenizer = load_encoder(preset.model.encoder)
    attach(encoder, preset.plugin, tokenizer=tokenizer)
    nn.Module.to(encoder, "cuda" if torch.cuda.is_available() else "cpu")
    trainer = Pretrainer(encoder, tokenizer, preset.pretrain, preset.model.pooling, given)
    run.rewind(0)
    history: list[dict[str, float]] = []

    def log(step: int, values: dict[str, float]) -> None:
        history.append({"step": step, **values})
        run.log(step, values)
        logger.info("step %d: %s", step, _words(values))

    metrics = trainer.run(log)
    save(encoder.cpu().eval(), run.model, tokenizer=tokenizer)
    run.finish(metrics, history)
    return metrics


def train(preset: Preset, launch: Launch, corpus: Corpus | None = None) -> Result:
    """Train two towers, then do the post-training of the preset; ``corpus`` is an open data set."""
    require_gpu(preset)
    has_gate = preset.model.use_plugin and preset.plugin.gate == "learned"
    if preset.post.gate_steps and not has_gate:
        raise ConfigError("post.gate_steps trains a learned gate: set plugin.gate=learned")
    torch.manual_seed(preset.train.seed)
    if preset.model.use_plugin and launch.pretrained is None and is_main_process():
        logger.warning(
            "BoolAttn starts untrained: the paper's pretraining is skipped. To have it: boolattn "
            "pretrain --preset %s --out heads, then train with --pretrained heads/model",
            preset.name,
        )
    dataset = corpus.dataset if corpus else open_data(preset, launch.data)
    run = RunFolder(launch.out)
    if is_main_process():
        run.open(preset, data_hashes(dataset), command=launch.command, resume=launch.resume)
    towers = make_towers(preset, launch.pretrained)
    freeze(towers, preset.train)
    if corpus is None:
        corpus = Corpus(dataset, towers.tokenizer, preset.model.document_length)
    steps = make_steps(preset, corpus, launch.rankings)
    validate = None
    if preset.data.validation:
        settings = preset.train
        sizes = (settings.n_validation_queries, settings.n_validation_documents)
        validate = corpus.validator(preset, preset.data.validation, *sizes)
    job = Job(preset, towers, steps, run, validate, show_progress=launch.show_progress)
    job.command = launch.command
    result = train_towers(job, resume=launch.resume)
    if preset.post.gate_steps and is_main_process():
        # Post-training loads the saved model: free this one first.
        del job, towers
        release_memory()
        result.metrics.update(_post_train(preset, corpus, run.model, run.model, launch))
        run.add_to_summary(result.metrics)
    return result


def post_train(preset: Preset, launch: Launch, corpus: Corpus | None = None) -> dict[str, float]:
    """Post-train the learned gate of the model ``launch.pretrained``."""
    if launch.pretrained is None:
        raise ConfigError("name the model to post-train: --pretrained FOLDER")
    dataset = corpus.dataset if corpus else open_data(preset, launch.data)
    run = RunFolder(launch.out)
    run.open(preset, data_hashes(dataset), command=launch.command, resume=launch.resume)
    if corpus is None:
        _, tokenizer = load_encoder(str(launch.pretrained))
        corpus = Corpus(dataset, tokenizer, preset.model.document_length)
    metrics = _post_train(preset, corpus, launch.pretrained, run.model, launch)
    run.finish(metrics, [])
    return metrics


def _post_train(
    preset: Preset, corpus: Corpus, source: Path, target: Path, launch: Launch
) -> dict[str, float]:
    model = TorchEncoder.load(source)
    queries = list(label_queries(corpus.split(preset.data.train)))
    if launch.parser_queries is not None:
        for name, own in read_labelled_queries(launch.parser_queries).items():
            queries += own if not name.startswith(HELD_OUT) else []
    metrics = {"gate_accuracy": train_gate(model, queries, preset)}
    save_model(model.towers, target, preset, command=launch.command)
    return metrics


def is_main_process() -> bool:
    """Whether this process writes and prints; torchrun numbers its processes."""
    return os.environ.get("RANK", "0") == "0"


def make_steps(preset: Preset, corpus: Corpus, rankings: Path | None = None) -> Steps:
    """Make the batches of a run; ``rankings`` as in :class:`Launch`."""
    settings = preset.train
    queries = corpus.split(preset.data.train)
    ranked = None
    if rankings:
        ranked = read_rankings(rankings, [query.id for query in queries], corpus.rows)
    examples = make_examples(queries, corpus.rows, ranked)
    if settings.n_bm25 and not any(example.ranked for example in examples):
        raise ConfigError("n_bm25 asks for negatives of a ranking; name it: --rankings FILE")
    domains = None
    if settings.one_domain:
        domains = [str(one.metadata.get("domain", "")) for one in corpus.dataset.documents]
    sampler = Sampler(examples, len(corpus.documents), settings, domains)
    collator = _collator(preset, corpus, examples)
    # A short run uses few of the documents; a long one nearly all.
    if sampler.n_steps * settings.batch_size * (1 + settings.n_negatives) > len(corpus.documents):
        logger.info("tokenising %d documents", len(corpus.documents))
        corpus.documents.fill()
    return Steps(sampler, collator)


def _collator(preset: Preset, corpus: Corpus, examples: Sequence[Example]) -> Collator:
    texts = [example.text for example in examples]
    rows = {example.id: row for row, example in enumerate(examples)}
    documents = corpus.documents
    length, scoped = preset.model.query_length, None
    if preset.model.use_plugin and preset.train.scope_weight:
        scoped = ScopeSentences(preset, corpus.tokenizer)
    chunk = preset.train.chunk or Collator.chunk
    more: Any = {"chunk": chunk, "operators": label_operators(preset), "scoped": scoped}
    tokens, in_batch = Tokens(corpus.tokenizer, texts, length), preset.train.use_in_batch
    return Collator(tokens, rows, documents, use_in_batch=in_batch, **more)


def open_data(preset: Preset, folder: Path | None) -> Dataset:
    """Open a preset's data set."""
    options = Options(
        folder=folder,
        size=preset.data.size,
        tell=logger.info,
        splits=preset.data.train.split("+"),
        training=True,
    )
    return open_dataset(preset.data.name, options)


def _words(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())
