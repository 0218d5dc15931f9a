# SPDX-License-Identifier: Apache-2.0
"""The site builds with every link checked, pages made from the source agree with it, no file lacks its licence."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site_hook import pages as site_pages
from docs.tuning_page import PAGE, page
from tests.docs.pages import ROOT, pages

pytestmark = pytest.mark.timeout(400)

SOURCES = (".py", ".cu", ".cuh", ".h", ".yaml", ".yml", ".sh", ".css", ".js", ".html")
BUILT = ("site", "build", "dist")
HEADER = "SPDX-License-Identifier: Apache-2.0"
MACHINE = re.compile(
    r"/roo[t]/|/wor[k]/(?!space)|/tmp/(?!\w*\.)[a-z]+/|pypi\.org/simple|files\.pythonhosted|http://(?:10|192\.168)\."
)


def tracked() -> list[Path]:
    """Files of the repository: those that git knows, or all where there is no git."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]
    inside = [path for path in ROOT.rglob("*") if path.is_file()]
    return [path for path in inside if not any(p.startswith(".") or p in BUILT for p in path.relative_to(ROOT).parts)]


def test_the_site_builds_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").is_file()
    # What a reader's browser would fetch comes from the site itself.
    for built in (tmp_path / "site").rglob("*.html"):
        text = built.read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?://", text), built.name


def test_links_of_the_pages_outside_the_site_lead_somewhere() -> None:
    for path in pages():
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
            if not target.startswith(("http", "mailto:")):
                assert (path.parent / target).exists(), f"{path.relative_to(ROOT)}: {target}"


def test_each_page_begins_with_its_title_and_is_listed() -> None:
    for name in site_pages():
        first = (ROOT / "docs" / name).read_text(encoding="utf-8").split("\n", 1)[0]
        assert first.startswith("# "), name


def test_the_tuning_page_is_what_the_commands_read() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python docs/tuning_page.py"


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_file_says_its_licence(kind: str) -> None:
    for path in tracked():
        if path.suffix == kind and path.stat().st_size:
            head = path.read_text(encoding="utf-8").split("\n", 6)[:6]
            assert any(HEADER in line for line in head), path.relative_to(ROOT)


def test_the_licence_is_there() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_no_page_names_a_machine() -> None:
    for path in [*pages(), ROOT / "Containerfile", ROOT / "mkdocs.yml"]:
        found = MACHINE.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path.relative_to(ROOT)}: {found and found[0]}"
