"""Turns the fields of a settings object into command line options, so each option is declared once."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_origin

import typer


class Only(tuple[str, ...]):
    """Takes only these fields of a settings object: `Annotated[TranslateSettings, Only(("beam",))]`."""


class Without(tuple[str, ...]):
    """Takes all fields of a settings object except these, which the command declares itself."""


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turns the fields of a command's settings objects into options, such as `--k 4 --weight 0.3`."""
    shape = inspect.signature(command, eval_str=True)
    flags = {name: list(options_of(one.annotation)) for name, one in shape.parameters.items() if is_settings(one)}

    @wraps(command)
    def called(**given: Any) -> Any:
        for name, options in flags.items():
            values = {one.name: given.pop(one.name) for one in options}
            given[name] = kind_of(shape.parameters[name].annotation)(**without_lists(values, options))
        return command(**given)

    parameters = [one for name, each in shape.parameters.items() for one in flags.get(name, [each])]
    called.__signature__ = shape.replace(parameters=in_order(parameters))  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


def is_settings(parameter: inspect.Parameter) -> bool:
    return is_dataclass(kind_of(parameter.annotation))


def kind_of(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def options_of(annotation: Any) -> Iterator[inspect.Parameter]:
    """A parameter for each field that has a help text."""
    notes = getattr(annotation, "__metadata__", ())
    chosen = next((note for note in notes if isinstance(note, Only)), None)
    left_out = next((note for note in notes if isinstance(note, Without)), ())
    for one in fields(kind_of(annotation)):
        if "help" in one.metadata and one.name not in left_out and (chosen is None or one.name in chosen):
            yield inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, default=default_of(one), annotation=annotation_of(one)
            )


def annotation_of(one: Field[Any]) -> Any:
    kind = list[str] | None if is_list(one) else one.type
    return Annotated[
        kind, typer.Option(f"--{one.name.replace('_', '-')}", help=one.metadata["help"], show_default=False)
    ]


def default_of(one: Field[Any]) -> Any:
    return None if is_list(one) or one.default is MISSING else one.default


def is_list(one: Field[Any]) -> bool:
    return get_origin(one.type) is tuple


def without_lists(values: dict[str, Any], options: list[inspect.Parameter]) -> dict[str, Any]:
    """Lists of options that may be repeated become tuples."""
    several = {one.name for one in options if get_args(kind_of(one.annotation))[:1] == (list[str],)}
    return {name: tuple(value or ()) if name in several else value for name, value in values.items()}


def in_order(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """All parameters as keyword parameters, because typer calls by keyword."""
    return [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
