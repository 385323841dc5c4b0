"""Transformers behind the contract: plain generation, prompt look-up, and assistance by a smaller model.

`Setup.draft` names the assistant, an ordinary language model with the target's vocabulary; the option
`prompt_lookup=N` asks for look-up with N drafts instead. Neither means plain generation.
"""

from importlib.metadata import version

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from specqual.contract import Claims, Method, Request, Rule, Scored, SeedContract, Setup, Unsupported
from specqual.contract.checkpoint import open_target

from .inprocess import GREEDY, InProcess, draft_length, limits_of, load, precision, score, take_options

HONOURED = frozenset("temperature top_k top_p min_p repetition_penalty seed n ignore_eos stop_ids".split())
RULES = {Method.NONE: Rule.NONE, Method.NGRAM: Rule.SAMPLER_MATCH, Method.ASSISTED: Rule.RATIO}
# Drafts of the assistant, unless the setup says otherwise. Transformers 5.15.1 takes back one position of its cache per
# round, however many drafts were rejected: that is right for up to two drafts, while more leave stale rows or crash.
DRAFTS = 2


class TransformersDecoder(InProcess):
    """`generate` of a Transformers model, batch size one."""

    def __init__(self, claims: Claims, target: PreTrainedModel, assistant: PreTrainedModel | None) -> None:
        super().__init__(claims)
        self._target, self._assistant = target, assistant
        self._lookup = claims.limits.max_draft if claims.method is Method.NGRAM else None

    def generate(self, request_id: int, request: Request, sample: int, stops: tuple[int, ...]) -> list[int]:
        prompt = torch.tensor([request.prompt], device=self._target.device)
        output = self._target.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            generation_config=generation_config(request, stops, self._lookup),
            assistant_model=self._assistant,
        )
        return output[0, prompt.shape[1] :].tolist()

    def score(self, prompt: tuple[int, ...], output: tuple[int, ...]) -> Scored:
        return score(self._target, prompt, output)


def generation_config(request: Request, stops: tuple[int, ...], lookup: int | None) -> GenerationConfig:
    """Translate a request; the order of its filters is Transformers' own, which agrees with the contract's."""
    sampling = request.sampling
    config = GenerationConfig(
        max_new_tokens=request.max_tokens,
        eos_token_id=list(stops) or None,
        pad_token_id=0,  # for batches only, which there are none of
        repetition_penalty=float(sampling.repetition_penalty),
        do_sample=not sampling.greedy,
        prompt_lookup_num_tokens=lookup,
    )
    if not sampling.greedy:
        config.temperature = float(sampling.temperature)
        config.top_k, config.top_p, config.min_p = sampling.top_k, float(sampling.top_p), sampling.min_p or None
    return config


def make(setup: Setup) -> TransformersDecoder:
    """Build the decoder; Unsupported carries Transformers' own refusal, such as assistance on a stateful model."""
    options = take_options(setup, {"prompt_lookup": 0})
    dtype, checkpoint = precision(setup), open_target(setup.target)
    if setup.draft is not None and options["prompt_lookup"]:
        raise ValueError("option prompt_lookup: excludes a draft")
    target = load(AutoModelForCausalLM, setup.target, dtype, checkpoint.left_out)
    target.generation_config = GenerationConfig()  # the request decides everything
    method, drafts, assistant = Method.NONE, 0, None
    if setup.rule is Rule.NONE:
        pass  # speculation off, whatever else is asked for
    elif options["prompt_lookup"]:
        method, drafts = Method.NGRAM, draft_length(setup, options["prompt_lookup"])
    elif setup.draft is not None:
        method, drafts = Method.ASSISTED, draft_length(setup, DRAFTS)
    if method is not Method.NONE:
        provoke_refusal(target)
    if method is Method.ASSISTED:
        assistant = load_assistant(setup, dtype, drafts, checkpoint.config.vocab_size)
    plain = method is Method.NONE
    claims = Claims(
        engine="transformers",
        version=version("transformers"),
        rule=RULES[method],
        method=method,
        greedy=GREEDY,
        sampling=HONOURED,
        seed=SeedContract.ALWAYS if plain else SeedContract.EQUAL_DRAFT_LENGTHS,
        limits=limits_of(checkpoint, drafts),
        dtype=dtype,
        attention=target.config._attn_implementation,
        device=str(target.device),
        threads=torch.get_num_threads(),
    )
    return TransformersDecoder(claims, target, assistant)


def provoke_refusal(target: PreTrainedModel) -> None:
    """Ask the engine for one token with look-up, so that its own refusal of assisted generation comes now."""
    prompt, config = torch.tensor([[1, 1]]), GenerationConfig(max_new_tokens=1, prompt_lookup_num_tokens=1)
    try:
        target.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
    except (ValueError, NotImplementedError) as error:
        raise Unsupported(str(error)) from error


def load_assistant(setup: Setup, dtype: str, drafts: int, vocabulary: int) -> PreTrainedModel:
    """Load the assistant; it drafts a constant number of tokens, so that no request depends on earlier ones."""
    checkpoint = open_target(setup.draft)
    if checkpoint.config.vocab_size != vocabulary:
        raise ValueError(f"draft: has a vocabulary of {checkpoint.config.vocab_size}, the target's is {vocabulary}")
    assistant = load(AutoModelForCausalLM, setup.draft, dtype, checkpoint.left_out)
    assistant.generation_config = GenerationConfig(
        num_assistant_tokens=drafts, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0
    )
    return assistant
