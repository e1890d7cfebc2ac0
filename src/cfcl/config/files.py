"""Configs from presets, TOML and overrides, and back to TOML; every complaint is one line."""

import difflib
import json
import tomllib
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from cfcl import methods
from cfcl.config.schema import Config, Section
from cfcl.errors import CfclError

PAPER = "paper.toml"
"""Laid over a preset, with `NAME-paper.toml` if there is one, it makes the variant that takes the paper literally."""


def with_method(config: Config, word: str) -> Config:
    """The same run by another method, given as `cfcl-explicit`, `uniform-implicit`, `fedavg`...

    `centralised` puts all points on one device.
    """
    method = methods.parse(word)
    if method.policy == "centralised":
        alone = ["partition.kind=iid", "partition.num_devices=1", "graph.kind=complete", "aggregation.num_devices=none"]
        config = override(config, alone)
    mode = [f"exchange.mode={method.mode}"] if method.mode else []
    return override(config, [f"exchange.method={method.policy}", *mode])


def presets() -> dict[str, str]:
    """Name and one-line description of every preset; each has a variant that takes the paper literally."""
    found: dict[str, str] = {}
    for item in sorted(resources.files("cfcl.presets").iterdir(), key=lambda item: item.name):
        if item.name.endswith(".toml") and not item.name.endswith(PAPER):
            name = item.name.removesuffix(".toml")
            found[name] = item.read_text().partition("\n")[0].lstrip("# ")
            found[f"{name}-paper"] = f"The same with every reading taken literally from the paper ({name} is ours)."
    return found


def load(spec: str | Path, overrides: Iterable[str] = ()) -> Config:
    """The run described by a preset name or a TOML file, with `section.key=value` overrides."""
    if str(spec) in presets():
        return build(_apply(_preset(str(spec)), overrides), source=str(spec))
    return parse(_read(Path(spec)), overrides, source=str(spec))


def parse(text: str, overrides: Iterable[str] = (), *, source: str = "the text") -> Config:
    """The run described by TOML text, with overrides; `source` is named in complaints."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CfclError(f"{source} is not valid TOML: {error}; fix that line") from None
    return build(_apply(table, overrides), source=source)


def override(config: Config, overrides: Iterable[str]) -> Config:
    """`config` with `section.key=value` overrides."""
    return build(_apply(config.model_dump(exclude_none=True), overrides), source="the overridden config")


def build(table: dict[str, Any], *, source: str = "the config") -> Config:
    """A checked config from nested dicts."""
    try:
        return Config.model_validate(table)
    except ValidationError as error:
        raise CfclError(f"{source}: {_explain(error)}") from None


def fields(config: Config) -> Iterator[tuple[str, str, Any, str]]:
    """Every field as (section, key, value, meaning); top-level keys first, with an empty section."""
    names = type(config).model_fields
    for key in names:
        if not isinstance(getattr(config, key), Section):
            yield "", key, getattr(config, key), _meaning(names[key])
    for section in names:
        group = getattr(config, section)
        if isinstance(group, Section):
            for key, info in type(group).model_fields.items():
                yield section, key, getattr(group, key), _meaning(info)


def section_meaning(config: Config, section: str) -> str:
    """The docstring of a section."""
    return (type(getattr(config, section)).__doc__ or "").strip()


def to_toml(config: Config, *, explain: bool = False) -> str:
    """The full resolved config as TOML; with `explain`, each field under its meaning."""
    lines: list[str] = []
    current = ""
    for section, key, value, meaning in fields(config):
        if section != current:
            current = section
            lines += ["", *([f"# {section_meaning(config, section)}"] if explain else []), f"[{section}]"]
        if explain:
            lines.append(f"# {meaning}")
        if value is None:
            # TOML has no null: a field that is not set stays visible as a comment.
            lines += [f"# {key} = (not set)"] if explain else []
        else:
            lines.append(f"{key} = {_toml_value(value)}")
    return "\n".join(lines) + "\n"


def _preset(name: str) -> dict[str, Any]:
    folder, base = resources.files("cfcl.presets"), name.removesuffix("-paper")
    table = tomllib.loads((folder / f"{base}.toml").read_text())
    if base == name:
        return table
    for layer in (folder / PAPER, folder / f"{base}-{PAPER}"):
        for section, fields_of_section in tomllib.loads(layer.read_text() if layer.is_file() else "").items():
            table[section] = {**table.get(section, {}), **fields_of_section}
    return {**table, "name": name}


def _meaning(info: FieldInfo) -> str:
    text = " ".join((info.description or "").split())
    options = [repr(option) for option in get_args(info.annotation) if isinstance(option, str)]
    return f"{text} [{' | '.join(options)}]" if options else text


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(str(path), presets(), n=1)
        hint = f"did you mean the preset {near[0]!r}? " if near else ""
        raise CfclError(
            f"{str(path)!r} is neither a preset nor a file: {hint}`cfcl presets` lists the presets"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CfclError(f"cannot read {str(path)!r} as text: {error}; give a readable UTF-8 TOML file") from None


def _apply(table: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    result = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    for item in overrides:
        path, equals, text = item.partition("=")
        keys = path.strip().split(".")
        if not equals or len(keys) > 2 or not all(keys):
            raise CfclError(f"override {item!r} is not of the form section.key=value, such as exchange.num_pulled=5")
        target = result
        if len(keys) == 2:
            target = result.setdefault(keys[0], {})
            if not isinstance(target, dict):
                raise CfclError(f"override {item!r}: {keys[0]!r} is not a section; `cfcl config` lists them")
        if text.strip() == "none":
            target.pop(keys[-1], None)
        else:
            target[keys[-1]] = _parse_value(text.strip())
    return result


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(error: ValidationError) -> str:
    errors = error.errors()
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    kind, given, context = first["type"], first["input"], first.get("ctx", {})
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(where, _all_keys(), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{where} is not a known key: {hint}`cfcl config` lists every key{more}"
    if kind == "literal_error":
        return f"{where}={given!r} is not an option: choose one of {context['expected']}{more}"
    if kind == "value_error":
        return f"{where + ': ' if where else ''}{context['error']}{more}"
    rule = first["msg"].removeprefix("Input should be ").removeprefix("String should ")
    rule = rule.replace("a valid tuple", "a list in brackets, such as [1, 10]")
    return f"{where}={given!r} is not allowed: it should be {rule}; change {where}{more}"


def _all_keys() -> list[str]:
    return [f"{section}.{key}".lstrip(".") for section, key, _, _ in fields(Config())]
