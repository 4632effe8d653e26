"""The documents cannot drift: README's commands run, its Python runs, and the command-line reference is generated."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import knnmt
from knnmt.switches import FAST_PATHS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RECIPES = sorted((ROOT / "recipes").glob("*/README.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), *RECIPES]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def knnmt_commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines() if "knnmt " in line]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """README's commands, run word for word one after the other, and what each printed."""
    folder = tmp_path_factory.mktemp("readme")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = {}
    for command in knnmt_commands():
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        printed[command] = done.stdout
    return folder, printed


def test_every_command_of_readme_runs(tried: tuple[Path, dict[str, str]]) -> None:
    folder, printed = tried
    assert len(printed) == 6
    assert (folder / "page.en.md").read_text(encoding="utf-8") == "Clean the **chain** before charging.\n"
    translation = next(text for command, text in printed.items() if "translate" in command)
    assert "Clean the chain" in translation


def test_the_demo_shows_what_it_computed(tried: tuple[Path, dict[str, str]]) -> None:
    text = next(text for command, text in tried[1].items() if command.startswith("knnmt demo"))
    base, knn = (float(re.search(rf"^{name} +([\d.]+)", text, flags=re.MULTILINE).group(1)) for name in ("base", "kNN"))
    assert knn > base + 5
    assert "nrefs:1|case:mixed" in text
    assert text.count("human") >= 6


def test_the_demo_and_evaluate_agree_on_the_base_model(tried: tuple[Path, dict[str, str]]) -> None:
    scores = [re.search(r"^base +([\d.]+)", text, flags=re.MULTILINE) for text in tried[1].values()]
    found = {match.group(1) for match in scores if match}
    assert len(found) == 1


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_python_of_readme_runs_and_is_short(tried: tuple[Path, dict[str, str]], number: int) -> None:
    code = blocks("python")[number]
    assert len(code.strip().splitlines()) < 10
    done = subprocess.run([sys.executable, "-c", code], cwd=tried[0], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Clean the chain" in done.stdout


def test_the_command_line_reference_is_current() -> None:
    subprocess.run([sys.executable, "docs/generate_cli.py", "--check"], cwd=ROOT, check=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link, _, anchor in re.findall(r"\]\(([^)#]*)(#([^)]+))?\)", page.read_text(encoding="utf-8")):
        target = page.parent / link if link else page
        assert link.startswith("https://") or target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors_of(target), f"{link}#{anchor}"


def anchors_of(page: Path) -> list[str]:
    """The headings of a page as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_teach_only_public_names(page: Path) -> None:
    """What users import is in `knnmt` itself; a page for developers may name modules as files."""
    text = page.read_text(encoding="utf-8")
    assert not re.findall(r"(?:from|import) knnmt\.\w+", text)
    for name in re.findall(r"`knnmt\.(\w+)", text):
        assert name in knnmt.__all__


def test_every_option_has_a_help_text() -> None:
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    assert not re.findall(r"^\| `--[^|]+\|\s*\|$", page, flags=re.MULTILINE)


def test_every_fast_path_is_named_with_its_switch() -> None:
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    section = page.split("## Switching fast paths off")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE) == list(FAST_PATHS)


def test_the_changelog_knows_this_version() -> None:
    from knnmt import __version__

    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
