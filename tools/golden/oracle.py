"""The independent implementation that kvist is held against: Hugging Face transformers in 64-bit (norms and softmax in
32-bit, as transformers has them), fed from GGUF files by a mapping of our own.

Used by make_models.py and real_weights.py. Not for: speed, or anything the server needs at run time.
"""
import json
import math
import pathlib

import gguf
import numpy as np
import torch
from transformers import (DynamicCache, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, Phi3Config,
                          Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM)
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

torch.set_num_threads(1)  # Same order of additions everywhere.

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM),
    "phi3": (Phi3Config, Phi3ForCausalLM),
    "qwen3moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM),
}
# Plain loops over the experts: other implementations take no 64-bit floats.
PLAIN = dict(attn_implementation="eager", experts_implementation="eager")

# Hugging Face name inside a layer -> GGUF name inside "blk.N.".
LAYER_NAMES = {
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.qkv_proj.weight": "attn_qkv.weight",
    "mlp.gate_up_proj.weight": "ffn_up.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
}
# Gemma has a norm before and after each half of a layer, so the common names mean other things there.
GEMMA_NAMES = LAYER_NAMES | {
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
}
TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def gguf_name(arch, hf_name):
    """GGUF's name of a Hugging Face parameter."""
    if hf_name in TOP_NAMES:
        return TOP_NAMES[hf_name]
    layer, rest = hf_name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}." + (GEMMA_NAMES if arch == "gemma3" else LAYER_NAMES)[rest]


def gguf_names(arch, hf_name):
    """The same, one or several: transformers has gate and up of all experts in one parameter, gate's rows first."""
    if hf_name.endswith("experts.gate_up_proj"):
        layer = hf_name.removeprefix("model.layers.").split(".", 1)[0]
        return [f"blk.{layer}.ffn_gate_exps.weight", f"blk.{layer}.ffn_up_exps.weight"]
    return [gguf_name(arch, hf_name)]


def cut(array, count):
    """`count` equal parts of the rows."""
    return np.split(array, count, axis=-2) if count > 1 else [array]


def heads_of(config, gguf_tensor_name):
    """Heads whose rows are reordered in a GGUF file of the llama architecture, or 0 where rows stay."""
    if gguf_tensor_name.endswith("attn_q.weight"):
        return config.num_attention_heads
    if gguf_tensor_name.endswith("attn_k.weight"):
        return config.num_key_value_heads
    return 0


def to_interleaved(rows, heads):
    """Rows of each head from (pair i: rows i and i + d/2) to (pair i: rows 2i and 2i + 1)."""
    d = rows.shape[0] // heads
    order = [h * d + half * (d // 2) + i for h in range(heads) for i in range(d // 2) for half in (0, 1)]
    return rows[order]


def to_half_split(rows, heads):
    """The inverse of to_interleaved."""
    d = rows.shape[0] // heads
    order = [h * d + 2 * i + half for h in range(heads) for half in (0, 1) for i in range(d // 2)]
    return rows[order]


def to_gguf(arch, config, name, array):
    """Value of a Hugging Face parameter as GGUF stores it; `name` is GGUF's."""
    heads = heads_of(config, name)
    if arch == "llama" and heads:
        return to_interleaved(array, heads)
    if arch == "gemma3" and name.endswith("norm.weight"):
        return array + 1
    return array


def from_gguf(arch, config, name, array):
    """The inverse of to_gguf."""
    heads = heads_of(config, name)
    if arch == "llama" and heads:
        return to_half_split(array, heads)
    if arch == "gemma3" and name.endswith("norm.weight"):
        return array.astype(np.float64) - 1
    return array


class File:
    """Keys and dequantised tensors of a GGUF file."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}
        self.arch = self.key("general.architecture")

    def key(self, name, default=None):
        field = self.reader.fields.get(name)
        return default if field is None else field.contents()

    def own(self, suffix, default=None):
        return self.key(f"{self.arch}.{suffix}", default)

    def tensor(self, name):
        """float32, shape with rows first."""
        t = self.tensors[name]
        return gguf.quants.dequantize(t.data, t.tensor_type).reshape(tuple(reversed(t.shape.tolist())))

    def rope(self):
        """transformers' rope parameters."""
        base = self.own("rope.freq_base", 10000.0)
        if "rope_factors_long.weight" in self.tensors:
            return self.partial_rope() | {
                "rope_type": "longrope", "rope_theta": base,
                "original_max_position_embeddings": self.own("rope.scaling.original_context_length"),
                "short_factor": self.tensor("rope_factors_short.weight").tolist(),
                "long_factor": self.tensor("rope_factors_long.weight").tolist()}
        kind, factor = self.own("rope.scaling.type", "none"), self.own("rope.scaling.factor", 1.0)
        if kind == "linear":
            return {"rope_type": "linear", "rope_theta": base, "factor": factor}
        if kind == "yarn":
            return {"rope_type": "yarn", "rope_theta": base, "factor": factor,
                    "original_max_position_embeddings": self.own("rope.scaling.original_context_length")}
        return self.partial_rope() | {"rope_type": "default", "rope_theta": base}

    def partial_rope(self):
        dims, head = self.own("rope.dimension_count"), self.own("embedding_length") // self.own("attention.head_count")
        return {"partial_rotary_factor": dims / head} if self.arch == "phi3" else {}

    def config(self):
        heads = self.own("attention.head_count")
        c = dict(
            vocab_size=int(self.tensors["token_embd.weight"].shape[1]),
            hidden_size=self.own("embedding_length"),
            intermediate_size=self.own("feed_forward_length"),
            num_hidden_layers=self.own("block_count"),
            num_attention_heads=heads,
            num_key_value_heads=self.own("attention.head_count_kv", heads),
            head_dim=self.own("attention.key_length", self.own("embedding_length") // heads),
            rms_norm_eps=self.own("attention.layer_norm_rms_epsilon"),
            max_position_embeddings=self.own("context_length"),
            tie_word_embeddings="output.weight" not in self.tensors,
            rope_parameters=self.rope(),
            pad_token_id=None, bos_token_id=None, eos_token_id=None,
        )
        if self.arch == "gemma3":
            c["rope_parameters"] = {"full_attention": self.rope(),
                                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
            c["sliding_window"] = self.own("attention.sliding_window")
            c["query_pre_attn_scalar"] = c["head_dim"]
        if self.arch == "phi3":
            c["sliding_window"] = self.own("attention.sliding_window") or None
            c["original_max_position_embeddings"] = self.own("rope.scaling.original_context_length", c["max_position_embeddings"])
            del c["head_dim"]
        if self.arch == "qwen3moe":
            c["num_experts"], c["num_experts_per_tok"] = self.own("expert_count"), self.own("expert_used_count")
            c["moe_intermediate_size"] = self.own("expert_feed_forward_length")
            c["norm_topk_prob"] = self.own("expert_weights_norm", True)
        return CLASSES[self.arch][0](**c, **PLAIN)


def fix_context(model, context):
    """LongRoPE's frequencies by the longest context that the server is opened for. transformers chooses by what a call
    sees, so that keys in the cache and those of longer calls may not fit together."""
    rotary = model.model.rotary_emb
    if rotary.rope_type != "longrope":
        return
    parameters = model.config.rope_parameters
    factors = parameters["long_factor" if context > parameters["original_max_position_embeddings"] else "short_factor"]
    dims = 2 * len(factors)
    plain = 1.0 / parameters["rope_theta"] ** (torch.arange(0, dims, 2).double() / dims)
    rotary.inv_freq = (plain / torch.tensor(factors).double()).to(rotary.inv_freq.dtype)
    rotary.rope_type = "fixed"


def load(path, context=None):
    """(model in float64, file). Every parameter must be found in the file and every tensor of the file be used.
    `context`: what the server is opened for, else what the model was trained for."""
    file = File(path)
    config = file.config()
    model = CLASSES[file.arch][1](config).double().eval()
    unused, state = set(file.tensors), {}
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        theirs = gguf_names(file.arch, name)
        value = np.concatenate([from_gguf(file.arch, config, t, file.tensor(t)) for t in theirs], axis=-2 if len(theirs) > 1 else 0)
        assert tuple(value.shape) == tuple(parameter.shape), (name, value.shape, parameter.shape)
        state[name] = torch.from_numpy(np.array(value, dtype=np.float64))
        unused -= set(theirs)
    if "rope_freqs.weight" in unused:
        scale_rope(model, file.tensor("rope_freqs.weight"))
        unused.remove("rope_freqs.weight")
    unused -= {"rope_factors_long.weight", "rope_factors_short.weight"}
    assert not unused, unused
    fix_context(model, context or config.max_position_embeddings)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all(m == "lm_head.weight" for m in missing), (missing, unexpected)
    return model, file


def scale_rope(model, factors):
    """Llama 3's scaling as GGUF has it: a divisor for each frequency."""
    rotary = model.model.rotary_emb
    rotary.inv_freq = rotary.inv_freq / torch.from_numpy(factors.copy()).to(rotary.inv_freq.dtype)


class HalfCache(DynamicCache):
    """Keys and values rounded to 16-bit floats, as a server keeps them."""

    def update(self, key_states, value_states, *args, **kwargs):
        return super().update(key_states.half().to(key_states.dtype), value_states.half().to(value_states.dtype),
                              *args, **kwargs)


@torch.no_grad()
def logits(model, tokens, half_kv=False):
    """[len(tokens), vocab] float64."""
    out = model(torch.tensor([tokens]), cache=HalfCache() if half_kv else DynamicCache(), use_cache=True)
    return out.logits[0].double().numpy()


@torch.no_grad()
def last_state(model, tokens):
    """The last token's state after the last norm, keys and values rounded as in logits(half_kv=True): what an embedding is made of."""
    out = model.model(torch.tensor([tokens]), cache=HalfCache(), use_cache=True)
    return out.last_hidden_state[0, -1].double().numpy()


@torch.no_grad()
def greedy(model, prompt, count, stop=()):
    """`count` tokens after `prompt` and, for each, by how much its logit leads the next one. `stop`: last token to produce."""
    cache, step, ids, margins = DynamicCache(), list(prompt), [], []
    while len(ids) < count and not (ids and ids[-1] in stop):
        row = model(torch.tensor([step]), cache=cache, use_cache=True).logits[0, -1]
        best = torch.topk(row, 2)
        ids.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        step = ids[-1:]
    return ids, margins


def nll(rows, tokens):
    """Negative log-likelihood of tokens[1:], each from the row before it. [len(tokens) - 1], nats."""
    rows = rows[:-1] - rows[:-1].max(axis=1, keepdims=True)
    return np.log(np.exp(rows).sum(axis=1)) - rows[np.arange(len(tokens) - 1), tokens[1:]]


class Int8Activations:
    """Context in which inputs of every matrix product (the head included) are rounded to int8 in blocks of 32: what
    integer kernels do to activations when weights are quantised. Gives the size of the error to expect, no golden value."""

    def __init__(self, model):
        self.model = model

    def __enter__(self):
        def rounded(x):
            b = x.reshape(-1, 32)
            d = b.abs().amax(1, keepdim=True) / 127
            return ((b / d.clamp_min(1e-30)).round() * d).reshape(x.shape)
        self.hooks = [m.register_forward_pre_hook(lambda _, args: rounded(args[0])) for m in self.model.modules()
                      if isinstance(m, torch.nn.Linear)]
        # Experts are no modules of their own; the router's weights and inputs are 32-bit floats.
        self.experts = [m for m in self.model.modules() if isinstance(m, Qwen3MoeExperts)]
        for m in self.experts:
            m.forward = self.with_rounded_products(m.forward, rounded)

    @staticmethod
    def with_rounded_products(forward, rounded):
        def run(*args):
            plain = torch.nn.functional.linear
            torch.nn.functional.linear = lambda x, w: plain(rounded(x), w)
            try:
                return forward(*args)
            finally:
                torch.nn.functional.linear = plain
        return run

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()
        for m in self.experts:
            del m.forward


def relative_rms(got, want):
    """RMS of the error over RMS of the wanted values about their mean."""
    return float(np.sqrt(np.mean((got - want) ** 2) / np.mean((want - want.mean()) ** 2)))


def significant(x, digits=7):
    """Nested lists and arrays with every float cut to `digits` significant digits: small files, no loss that matters."""
    if isinstance(x, dict):
        return {k: significant(v, digits) for k, v in x.items()}
    if isinstance(x, (list, tuple, np.ndarray)):
        return [significant(v, digits) for v in x]
    if isinstance(x, (float, np.floating)):
        assert math.isfinite(x)
        return float(f"{x:.{digits}g}")
    return int(x) if isinstance(x, np.integer) else x


def write_json(path, value):
    """One key a line at the top level, so that a diff can be read."""
    lines = [f" {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in significant(value).items()]
    pathlib.Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n")
