"""One run from a preset: data, model, batches, training and saving."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.errors import ConfigError
from boolattn.evaluation.ranking import read_run
from boolattn.files import text_hash
from boolattn.plugin import attach, save
from boolattn.training.batches.sampling import Sampler, Steps, make_examples
from boolattn.training.batches.tokens import PretrainingSet, ScopeSentences, Tokens
from boolattn.training.corpus import Corpus, label_operators
from boolattn.training.loop import processes
from boolattn.training.pretrain import Pretrainer
from boolattn.training.retrieval import Result, RetrievalTraining, require_gpu
from boolattn.training.run_folder import RunFolder, data_hashes
from boolattn.training.settings import load_preset
from boolattn.training.towers import freeze, load_encoder, make_towers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from boolattn.data.records import Dataset
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Where a run reads and writes."""

    out: Path  # The run's folder
    data: Path | None = None  # Folder of the data set, or of SetBERT's files to pretrain on
    pretrained: Path | None = None  # Initial weights: ``model`` of a pretraining or a training
    rankings: Path | None = None  # A ranking of the training queries: a TREC run
    resume: bool = False  # Continue a run that was interrupted
    command: str = ""  # As typed, for ``run.json`` and the model card


def run_command(verb: str, preset: str, changes: Sequence[str], launch: Launch) -> dict[str, Any]:
    """Run "pretrain" or "train" with a preset; return what is printed."""
    settings = load_preset(preset, changes, first=verb)
    if verb == "pretrain":
        return {"model": str(launch.out / "model"), **pretrain(settings, launch)}
    result = train(settings, launch)
    return {"model": str(result.model), "steps": result.n_steps, **result.metrics}


def pretrain(preset: Preset, launch: Launch) -> dict[str, float]:
    """Pretrain the heads of a plug-in, save it with its encoder, return metrics of the heads."""
    require_gpu(preset)
    run = RunFolder(launch.out)
    data, sentences = {"name": "sentences"}, None
    if launch.data is not None:
        sentences = PretrainingSet.setbert(launch.data, preset.pretrain)
        data = {"name": "setbert", "train": text_hash((row.text,) for row in sentences.sentences)}
    run.open(preset, data, kind="pretrain", command=launch.command, resume=launch.resume)
    torch.manual_seed(preset.pretrain.seed)
    encoder, tokenizer = load_encoder(preset.model.encoder)
    attach(encoder, preset.plugin, tokenizer=tokenizer)
    nn.Module.to(encoder, "cuda" if torch.cuda.is_available() else "cpu")
    trainer = Pretrainer(encoder, tokenizer, preset.pretrain, preset.model.pooling, sentences)
    metrics = trainer.run(run.log)
    save(encoder.cpu().eval(), run.model, tokenizer=tokenizer)
    run.finish(metrics)
    return metrics


def train(preset: Preset, launch: Launch, corpus: Corpus | None = None) -> Result:
    """Train two towers; ``corpus`` is an open data set."""
    require_gpu(preset)
    torch.manual_seed(preset.train.seed)
    dataset = corpus.dataset if corpus else open_data(preset, launch.data)
    towers = make_towers(preset, launch.pretrained)
    freeze(towers, preset.train)
    # After the towers: of several processes only the first can write a model's files.
    state = processes()
    if preset.model.use_plugin and launch.pretrained is None and state.is_main_process:
        logger.warning(
            "BoolAttn starts untrained: the paper's pretraining is skipped. To have it: boolattn "
            "pretrain --preset %s --out heads, then train with --pretrained heads/model",
            preset.name,
        )
    run = RunFolder(launch.out, is_main=state.is_main_process)
    run.open(preset, data_hashes(dataset), command=launch.command, resume=launch.resume)
    if corpus is None:
        corpus = Corpus(dataset, towers.tokenizer, preset.model.document_length)
    steps = make_steps(preset, corpus, launch.rankings)
    validate = corpus.validator(preset) if preset.data.validation else None
    training = RetrievalTraining(preset, towers, steps, run, validate, launch.command)
    result = training.train(resume=launch.resume)
    state.destroy_process_group()
    return result


def make_steps(preset: Preset, corpus: Corpus, rankings: Path | None = None) -> Steps:
    """Make the batches of a run; ``rankings`` as in :class:`Launch`."""
    settings = preset.train
    queries = corpus.split(preset.data.train)
    ids, ranked = [query.id for query in queries], {}
    if rankings:
        ranking = read_run(rankings, ids, corpus.rows, skip_unknown=True)
        ranked = dict(zip(ids, ranking.rows.tolist(), strict=True))
    examples = make_examples(queries, corpus.rows, ranked)
    if settings.n_bm25 and not any(example.ranked for example in examples):
        raise ConfigError("n_bm25 asks for negatives of a ranking; name it: --rankings FILE")
    domains = None
    if settings.one_domain:
        domains = [str(d.metadata.get("domain", "")) for d in corpus.dataset.documents]
    sampler = Sampler(examples, len(corpus.documents), settings, domains)
    scoped = None
    if preset.model.use_plugin and settings.scope_weight:
        scoped = ScopeSentences(preset, corpus.tokenizer)
    texts = [example.text for example in sampler.examples]
    steps = Steps(
        sampler,
        Tokens(corpus.tokenizer, texts, preset.model.query_length),
        corpus.documents,
        chunk=settings.chunk or Steps.chunk,
        operators=label_operators(preset),
        scoped=scoped,
    )
    # A short run uses few of the documents; a long one nearly all.
    if len(steps) * settings.batch_size * (1 + settings.n_negatives) > len(corpus.documents):
        logger.info("tokenising %d documents", len(corpus.documents))
        corpus.documents.fill()
    return steps


def open_data(preset: Preset, folder: Path | None) -> Dataset:
    """Open a preset's data set."""
    options = DataOptions(
        folder=folder,
        size=preset.data.size,
        tell=logger.info,
        splits=preset.data.train.split("+"),
        training=True,
    )
    return open_dataset(preset.data.name, options)
