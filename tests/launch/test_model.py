# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from launch.model import model_folder, require_model_folder
from tao_dynamo.errors import ConfigError

# The bytes must not depend on the machine or the Python: block hashes of every stack follow from them.
TOKENIZER_SHA256 = "4848085c0727796b14cbe0e956ab041077311c3f61d42aa03cc373de2e46ee2a"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("cache"))


def test_the_same_bytes_come_out_everywhere(folder: Path) -> None:
    assert hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest() == TOKENIZER_SHA256


def test_text_survives_the_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "Hello, the world of 1,234 agents!\n\tdef f(x): return x ** 2  # é 漢字 🙂"
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert len(ids) < len(text)


def test_what_the_mocker_answers_is_text(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert all(tokenizer.decode([token]).strip() for token in range(1000, 2000))


def test_sizes_agree(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = json.loads((folder / "config.json").read_text())
    assert config["vocab_size"] == tokenizer.get_vocab_size() == 4096
    generation = json.loads((folder / "generation_config.json").read_text())
    assert tokenizer.token_to_id("<|im_end|>") in generation["eos_token_id"]


def test_a_second_call_makes_nothing_new(tmp_path: Path) -> None:
    first = model_folder(tmp_path)
    before = (first / "config.json").stat().st_mtime_ns
    assert model_folder(tmp_path) == first
    assert (first / "config.json").stat().st_mtime_ns == before
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file")
    with pytest.raises(ConfigError, match="XDG_CACHE_HOME"):
        model_folder(tmp_path)


def test_a_folder_without_a_model_is_refused(folder: Path, tmp_path: Path) -> None:
    assert require_model_folder("--model", str(folder)) == folder
    with pytest.raises(ConfigError, match="want a model folder that is there"):
        require_model_folder("--model", str(tmp_path / "none"))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"want a model folder with tokenizer.json in it"):
        require_model_folder("--model", str(tmp_path))
