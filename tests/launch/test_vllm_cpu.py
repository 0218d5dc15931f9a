# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

from launch.vllm_cpu import install, model, worker


def test_what_a_text_model_needs_is_kept_without_markers() -> None:
    requirements = [
        "numpy",
        "torch==2.13.0+cpu; platform_machine == 'x86_64' or platform_machine != 'x86_64'",
        "torchvision",
        "torchaudio; platform_machine != 's390x'",
        "torchcodec>=0.14",
        "fastapi[standard]<0.137.0,>=0.133.0",
        "scipy; extra == 'bench'",
        "tomli; python_version < '3'",
    ]
    assert install.needed(requirements) == ["numpy", "torch==2.13.0+cpu", "fastapi[standard]<0.137.0,>=0.133.0"]


def test_the_alias_is_a_distribution_whose_version_says_cpu(tmp_path: Path) -> None:
    install.write_alias(tmp_path)
    install.write_alias(tmp_path)
    (found,) = importlib.metadata.distributions(path=[str(tmp_path)])
    assert found.metadata["Name"] == "vllm"
    assert found.version == f"{install.VLLM}+cpu"
    assert found.files is not None
    assert all((tmp_path / str(file)).is_file() for file in found.files)


def test_rows_of_rotary_pairs_go_into_halves() -> None:
    # Two heads of four rows: llama.cpp has x0 y0 x1 y1 for each head, Hugging Face x0 x1 y0 y1.
    rows = np.array([0, 2, 1, 3, 10, 12, 11, 13])
    assert model.in_halves(rows[:, None], 2)[:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12, 13]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"),
        ("blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
        ("blk.4.ffn_up.weight", None),
    ],
)
def test_tensors_get_hugging_face_names_and_late_layers_none(name: str, expected: str | None) -> None:
    assert model.hf_name(name, 4) == expected


def test_the_stand_in_says_what_is_missing() -> None:
    with pytest.raises(RuntimeError, match="torchvision"):
        worker.smart_resize(1, 2)
