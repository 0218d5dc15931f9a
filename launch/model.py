# SPDX-License-Identifier: Apache-2.0
"""A tiny model folder for mock workers: configuration and tokenizer, no weights.

Frontend and mocker read nothing else of a model. The tokenizer is written out by rule, not trained, so that the same
bytes come out everywhere: byte-level BPE over 4,096 tokens, whose merges are pairs of letters, with and without a
leading space, and of syllables. The mocker answers with random ids from 1000 to 1999; each of them is a piece of
readable text.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

from tao_dynamo.errors import ConfigError

NAME = "tao-tiny"
VOCABULARY = 4096
MAX_TOKENS = 1_048_576

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_END_OF_TEXT, _END_OF_TURN = 0, 2
_SPACE = "\u0120"  # how byte-level BPE writes a space
_SYLLABLES = [left + right for left in "bcdfghlmnprstvwy" for right in "aeiou"]
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def model_folder(cache: Path | None = None) -> Path:
    """The tiny model's folder, made on first use (in 50 ms) and kept in the user's cache.

    Args:
        cache: where to keep it (default: ``$XDG_CACHE_HOME/tao-dynamo``, else ``~/.cache/tao-dynamo``).
    """
    files = _files()
    digest = hashlib.sha256("\0".join(f"{name}\0{text}" for name, text in files.items()).encode()).hexdigest()[:12]
    folder = (cache or _user_cache()) / "models" / digest / NAME
    if not folder.is_dir():
        _write(folder, files)
    return folder


def require_model_folder(where: str, path: str) -> Path:
    """A model folder that the user named, made absolute.

    Raises:
        ConfigError: it is not there, or holds no model.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(where, path, "a model folder that is there")
    missing = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
    if missing:
        raise ConfigError(where, path, f"a model folder with {' and '.join(missing)} in it")
    return folder


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tao-dynamo"


def _write(folder: Path, files: dict[str, str]) -> None:
    """Write a folder that appears whole or not at all, whoever else is writing the same one."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    except OSError as error:
        raise ConfigError("XDG_CACHE_HOME", str(folder.parent), f"a folder to write to ({error.strerror})") from error
    try:
        for name, text in files.items():
            (scratch / name).write_text(text, encoding="utf-8")
        scratch.chmod(0o755)
        scratch.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _files() -> dict[str, str]:
    contents = {
        "config.json": _config(),
        "generation_config.json": {
            "bos_token_id": _END_OF_TEXT,
            "eos_token_id": [_END_OF_TURN, _END_OF_TEXT],
            "pad_token_id": _END_OF_TEXT,
            "do_sample": False,
        },
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None,
            "eos_token": _SPECIAL[_END_OF_TURN],
            "pad_token": _SPECIAL[_END_OF_TEXT],
            "model_max_length": MAX_TOKENS,
            "chat_template": _TEMPLATE,
        },
    }
    return {name: json.dumps(content, ensure_ascii=True) for name, content in contents.items()}


def _config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": 28,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": MAX_TOKENS,
        "torch_dtype": "bfloat16",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": _END_OF_TEXT,
        "eos_token_id": _END_OF_TURN,
    }


def _tokenizer() -> dict[str, Any]:
    merges = _merges()
    tokens = [*_SPECIAL, *_byte_letters(), *(left + right for left, right in merges)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, text in enumerate(_SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: number for number, text in enumerate(tokens)},
            "merges": [list(pair) for pair in merges],
        },
    }


def _byte_letters() -> list[str]:
    """The letter that byte-level BPE writes for each of the 256 bytes (GPT-2's table), in the order of the bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


def _merges() -> list[tuple[str, str]]:
    """As many merges as fill the vocabulary."""
    room = VOCABULARY - len(_SPECIAL) - 256
    return [pair for pair, _ in zip(_all_merges(), range(room), strict=False)]


def _all_merges() -> Iterator[tuple[str, str]]:
    pairs = [(left, right) for left in ascii_lowercase for right in ascii_lowercase]
    yield from pairs
    yield from ((left, right) for left in ascii_uppercase for right in ascii_lowercase)
    yield from ((_SPACE, left + right) for left, right in pairs)
    yield from ((left, right) for left in digits for right in digits)
    yield from ((_SPACE, letter) for letter in ascii_lowercase + ascii_uppercase)
    yield from ((left, right) for left in _SYLLABLES for right in _SYLLABLES)
