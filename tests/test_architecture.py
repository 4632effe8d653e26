"""docs/architecture.md shows the package as it is: its rooms, their order, and which of them meet."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import pytest

ROOT = Path(__file__).parents[1]
MOST_MODULES = 15
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
ROOMS = sorted(folder.parent.name for folder in (ROOT / "knnmt").glob("*/__init__.py"))
ARROWS = re.findall(r"^ +(\w+) (?:-->|-\.->)(?:\|[^|]*\|)? (\w+)$", PAGE, flags=re.MULTILINE)
TABLE = re.findall(r"^\| `(\w+)` \|(?:.*)\| (.*) \|$", PAGE, flags=re.MULTILINE)


CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]


def layers() -> list[list[str]]:
    """What may import what, from the top down; names on one line may not import each other."""
    return [line.split(" : ") for contract in CONTRACTS if contract["type"] == "layers" for line in contract["layers"]]


@pytest.mark.parametrize(
    "contract", [one for one in CONTRACTS if one["name"].endswith(" alone")], ids=lambda one: one["name"]
)
def test_a_library_of_one_room_is_forbidden_to_all_others(contract: dict[str, Any]) -> None:
    """A new room is not forgotten in the contracts."""
    alone = set(re.findall(r"\w+", contract["name"].partition(" known to ")[2])) - {"and", "alone"}
    others = {name for names in layers() for name in names} - alone
    assert set(contract["source_modules"]) == {f"knnmt.{name}" for name in others}


def test_the_picture_has_every_room() -> None:
    assert sorted({room for arrow in ARROWS for room in arrow}) == ROOMS


@cache
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("knnmt")


@pytest.mark.parametrize("arrow", sorted(set(ARROWS)), ids=" to ".join)
def test_arrows_join_rooms_that_meet(arrow: tuple[str, str]) -> None:
    graph = imports()
    here, there = (f"knnmt.{room}" for room in arrow)
    ways = ((here, there), (there, here))
    met = [graph.direct_import_exists(importer=one, imported=other, as_packages=True) for one, other in ways]
    assert any(met), f"neither {arrow[0]} nor {arrow[1]} imports the other"


def test_the_table_has_every_room_in_the_order_of_the_layers() -> None:
    rooms = [room for room, _ in TABLE]
    assert sorted(rooms) == ROOMS
    height = {name: level for level, names in enumerate(reversed(layers())) for name in names}
    assert [height[room] for room in rooms] == sorted(height[room] for room in rooms)


def test_every_module_at_the_top_is_named() -> None:
    modules = {path.stem for path in (ROOT / "knnmt").glob("*.py")} - {"__init__", "__main__"}
    row = next(line for line in PAGE.splitlines() if line.startswith("| `knnmt/*.py`"))
    assert set(re.findall(r"`(\w+)`", row)) == modules
    assert {name for names in layers() for name in names} == modules | set(ROOMS)


@pytest.mark.parametrize(("room", "modules"), TABLE)
def test_reading_starts_at_modules_that_exist(room: str, modules: str) -> None:
    for module in re.findall(r"`([\w.]+)`", modules):
        assert (ROOT / "knnmt" / room / module).is_file()


def test_things_happen_where_the_page_says() -> None:
    table = PAGE.split("## Where things happen")[1].split("\n## ")[0]
    places = re.findall(r"`([\w/]+\.py)`: `(\w+)`", table)
    assert len(places) > 20
    for module, name in places:
        text = (ROOT / "knnmt" / module).read_text(encoding="utf-8")
        assert re.search(rf"^ *(?:def|class) {name}\b", text, flags=re.MULTILINE), f"{module}: {name}"


def test_tests_mirror_the_rooms() -> None:
    folders = {folder.name for folder in (ROOT / "tests").iterdir() if any(folder.glob("test_*.py"))}
    assert folders - {"bench", "recipes"} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_and_stays_small(room: str) -> None:
    folder = ROOT / "knnmt" / room
    assert (folder / "__init__.py").read_text(encoding="utf-8").startswith('"""')
    assert len(list(folder.glob("*.py"))) - 1 <= MOST_MODULES


def test_no_two_modules_differ_by_a_letter() -> None:
    """A module may have the name of a room, as `serve.documents` has, which serves what that room does."""
    names = {path.stem for pattern in ("*/*.py", "*.py") for path in (ROOT / "knnmt").glob(pattern)} - set(ROOMS)
    near = [(one, other) for one in names for other in names if one != other and one in shortened(other)]
    assert near == []


def shortened(name: str) -> set[str]:
    return {name[:at] + name[at + 1 :] for at in range(len(name))}


def definitions() -> Iterator[tuple[str, str]]:
    """Modules and the names they define. Commands and routes have their users' words, as `tune` has."""
    for path in (ROOT / "knnmt").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                called_from_outside = any(isinstance(one, ast.Call) for one in node.decorator_list)
                if isinstance(node, ast.ClassDef) or not called_from_outside:
                    yield module_of(path), node.name


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imported() -> set[tuple[str, str]]:
    """Modules and names that other modules import from them."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "knnmt").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {(node.module or "", alias.name) for node in nodes for alias in node.names}


def test_a_name_that_is_imported_means_one_thing() -> None:
    """Whoever meets it in another module can search for it and finds one definition."""
    places = defaultdict(set)
    for module, name in definitions():
        places[name].add(module)
    shared = {name for module, name in imported() if module in places[name]}
    assert len(shared) > 500
    assert {name: places[name] for name in shared if len(places[name]) > 1} == {}


CHANGES = re.findall(
    r"^\| (an? [^|]+|another [^|]+) \| ([^|]+) \| ([^|]+) \|$",
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)


@pytest.mark.parametrize(("change", "rooms", "start"), CHANGES)
def test_contributing_names_places_that_exist(change: str, rooms: str, start: str) -> None:
    named = re.findall(r"`(\w+)`", rooms)
    assert set(named) <= set(ROOMS)
    assert len(named) <= 2
    for module in re.findall(r"`(\w+\.py)`", start):
        assert any((ROOT / "knnmt" / room / module).is_file() for room in named), module
    for name, module in re.findall(r"`(\w+)` in `(\w+\.py)`", start):
        assert any(name in path.read_text(encoding="utf-8") for path in (ROOT / "knnmt").glob(f"*/{module}")), name


def test_contributing_knows_the_usual_changes() -> None:
    assert len(CHANGES) >= 7
