"""One run from a preset: data, model, batches, training and saving."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.data.sentences import Mixture, generate
from boolattn.encoder.bool_bert import BoolBertModel
from boolattn.encoder.towers import (
    TowerConfig,
    build_towers,
    from_pretrained,
    load_towers,
    query_encoder,
    settings_of,
)
from boolattn.encoders.models import torch_source
from boolattn.errors import ConfigError
from boolattn.evaluation.ranking import read_run
from boolattn.files import text_hash
from boolattn.plugin.install import plugin_of
from boolattn.plugin.storage import attach, save
from boolattn.training.batches.sampling import Sampler, Steps, make_examples
from boolattn.training.batches.tokens import LabelledSentences, PretrainingSet, Tokens
from boolattn.training.loop import RunFolder, data_fingerprint, processes
from boolattn.training.pretrain import Pretrainer
from boolattn.training.retrieval import Corpus, RetrievalTraining, require_gpu

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedTokenizerBase

    from boolattn.training.settings import Preset, TrainSettings

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


def pretrain(preset: Preset, launch: Launch) -> dict[str, float]:
    """Pretrain the heads of a plug-in, save it with its encoder, return metrics of the heads."""
    require_gpu(preset)
    run = RunFolder(launch.out, launch.command, resume=launch.resume)
    data, sentences = {"name": "sentences"}, None
    if launch.data is not None:
        sentences = PretrainingSet.setbert(launch.data, preset.pretrain)
        data = {"name": "setbert", "train": text_hash((row.text,) for row in sentences.sentences)}
    run.open(preset, data, kind="pretrain")
    torch.manual_seed(preset.pretrain.seed)
    encoder, tokenizer = load_encoder(preset.model.encoder)
    attach(encoder, preset.plugin, tokenizer=tokenizer)
    nn.Module.to(encoder, "cuda" if torch.cuda.is_available() else "cpu")
    trainer = Pretrainer(encoder, tokenizer, preset.pretrain, preset.model.pooling, sentences)
    metrics = trainer.run(run.log)
    save(encoder.cpu().eval(), run.model, tokenizer=tokenizer)
    run.finish(metrics)
    return metrics


def train(preset: Preset, launch: Launch, corpus: Corpus | None = None) -> dict[str, float]:
    """Train two towers; ``corpus`` is an open data set. Return steps, last loss, best metrics."""
    require_gpu(preset)
    torch.manual_seed(preset.train.seed)
    data = preset.data
    options: Any = {"folder": launch.data, "size": data.size, "splits": data.train.split("+")}
    options |= {"tell": logger.info, "training": True}
    dataset = corpus.dataset if corpus else open_dataset(data.name, DataOptions(**options))
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
    run = RunFolder(launch.out, launch.command, resume=launch.resume)
    run.open(preset, {"name": dataset.name, "hash": data_fingerprint(dataset, dataset.splits)})
    if corpus is None:
        corpus = Corpus(dataset, towers.tokenizer, preset.model.document_length)
    steps = make_steps(preset, corpus, launch.rankings)
    validate = corpus.validator(preset) if preset.data.validation else None
    metrics = RetrievalTraining(preset, towers, steps, run, validate).train()
    state.destroy_process_group()
    return metrics


def make_steps(preset: Preset, corpus: Corpus, rankings: Path | None = None) -> Steps:
    """Make the batches of a run; ``rankings`` as in :class:`Launch`."""
    settings, queries = preset.train, corpus.split(preset.data.train)
    ids, ranked, domains = [query.id for query in queries], {}, None
    if rankings:
        ranking = read_run(rankings, ids, corpus.rows, skip_unknown=True)
        ranked = dict(zip(ids, ranking.rows.tolist(), strict=True))
    examples = make_examples(queries, corpus.rows, ranked)
    if settings.n_bm25 and not any(example.ranked for example in examples):
        raise ConfigError("n_bm25 asks for negatives of a ranking; name it: --rankings FILE")
    if settings.one_domain:
        domains = [str(doc.metadata.get("domain", "")) for doc in corpus.dataset.documents]
    sampler = Sampler(examples, len(corpus.documents), settings, domains)
    texts = [example.query.text for example in sampler.examples]
    tokens = Tokens(corpus.tokenizer, texts, preset.model.query_length)
    steps = Steps(sampler, tokens, corpus.documents, takes_labels=preset.takes_labels)
    if preset.model.use_plugin and settings.scope_weight:
        mixture = Mixture(varied=preset.pretrain.varied_share)
        every = generate(preset.pretrain.n_sentences, settings.seed, mixture)
        used = [sentence for sentence in every if sentence.operators]
        steps.scoped = LabelledSentences(used, corpus.tokenizer)
    steps.chunk = settings.chunk or Steps.chunk
    # A short run uses few of the documents; a long one nearly all.
    if len(steps) * settings.batch_size * (1 + settings.n_negatives) > len(corpus.documents):
        logger.info("tokenising %d documents", len(corpus.documents))
        corpus.documents.fill(range(len(corpus.documents)))
    return steps


def load_encoder(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder and its tokenizer by name."""
    source = torch_source(name)
    # Weights stored in half precision would be trained in it, and become nan.
    return from_pretrained(AutoModel, source).float(), from_pretrained(AutoTokenizer, source)


def make_towers(preset: Preset, pretrained: Path | None = None) -> SentenceTransformer:
    """Build the towers of a preset, or begin with the model of a pretraining or a training."""
    model, base = preset.model, torch_source(preset.model.encoder)
    if pretrained is None:
        more: dict[str, Any] = {}
    elif not pretrained.is_dir():
        raise ConfigError(f"no folder {pretrained} to begin from; name a run's model")
    elif (pretrained / "modules.json").is_file():
        towers = load_towers(pretrained)
        _check_same(pretrained, preset, towers)
        return towers.float()
    elif not model.use_plugin:
        raise ConfigError("plain towers take no pretrained plug-in; leave out --pretrained")
    else:
        # The paper's document encoder is BERT, without the embeddings that pretraining moved.
        more = {"document_encoder": None if model.is_shared else base}
    more |= {item.name: getattr(model, item.name) for item in fields(TowerConfig)}
    config = preset.plugin if model.use_plugin else None
    return build_towers(str(pretrained or base), config, **more).float()


def freeze(towers: SentenceTransformer, settings: TrainSettings) -> None:
    """Freeze what the settings name.

    Retrieval training would move gate and cue predictor by what a vector gains, away from the
    query's operators. A frozen encoder has no dropout: documents keep their vectors.
    """
    encoder = query_encoder(towers)
    plugin = plugin_of(encoder.backbone) if isinstance(encoder, BoolBertModel) else None
    if settings.freeze_encoder:
        towers.requires_grad_(False)
    if plugin is not None:
        plugin.requires_grad_(True)
        for head in filter(None, (plugin.cue, plugin.gate)) if settings.freeze_heads else ():
            head.requires_grad_(False)
    elif settings.freeze_heads or settings.freeze_encoder:
        raise ConfigError("freeze_heads and freeze_encoder need the plug-in: model.use_plugin=true")
    for part in towers.modules():
        if settings.freeze_encoder and isinstance(part, nn.Dropout):
            part.p = 0.0
        if settings.freeze_embeddings and isinstance(part, PreTrainedModel):
            part.get_input_embeddings().requires_grad_(False)


def _check_same(folder: Path, preset: Preset, towers: SentenceTransformer) -> None:
    """Raise if towers are not those that a preset names."""
    encoder, model = query_encoder(towers), preset.model
    is_bool_bert = isinstance(encoder, BoolBertModel)
    for name, value in {**asdict(settings_of(towers)), "use_plugin": is_bool_bert}.items():
        if value != getattr(model, name):
            problem = f"its {name} is {value}, not {getattr(model, name)}"
            remedy = f"--set model.{name}={value} takes it"
            raise ConfigError(f"{folder} is of another model: {problem}; {remedy}")
    if is_bool_bert and encoder.config.boolattn_config != preset.plugin:
        raise ConfigError(f"{folder} is of another model: its plug-in has other settings")
    source = torch_source(model.encoder)
    if not Path(source).is_dir():  # one that is not on disk is not needed, and not compared
        return
    config = AutoConfig.from_pretrained(source, local_files_only=True)
    for name in ("model_type", "hidden_size", "num_hidden_layers", "vocab_size"):
        here, there = (getattr(c, name, None) for c in (encoder.base_model.config, config))
        if here != there:
            problem = f"its encoder has {name} {here}, and {model.encoder} {there}"
            raise ConfigError(f"{folder} is of another model: {problem}")


def average(base: str, model: Path, share: float) -> SentenceTransformer:
    """Return the model with the weights ``base + share · (model - base)`` of its encoder.

    A model half-way back to its base keeps more of what the base knows of other domains. ``base``
    is the folder or hub name of the encoder that it was trained from.
    """
    start, towers = load_encoder(base)[0].state_dict(), load_towers(model, device="cpu")
    if not settings_of(towers).is_shared:
        raise ConfigError(f"{model} has towers with different weights; average shared ones")
    weights = query_encoder(towers).base_model.state_dict()
    if {n: v.shape for n, v in weights.items()} != {n: v.shape for n, v in start.items()}:
        raise ConfigError(f"{model} was not trained from {base}: its encoder differs")
    for name, value in weights.items():
        if value.is_floating_point():
            value.copy_(start[name] + share * (value - start[name]))
    return towers
