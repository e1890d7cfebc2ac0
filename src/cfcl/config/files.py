"""Configs from presets, TOML and overrides, and back to TOML; every complaint is one line."""

import difflib
import json
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from cfcl import methods, reading
from cfcl.config.complaints import explain, shown
from cfcl.config.fields import Section
from cfcl.config.schema import Config
from cfcl.config.trouble import AttackConfig, DefenceConfig, FaultsConfig, PrivacyConfig
from cfcl.errors import CfclError

PAPER, STUDY = "-paper", "-study"
"""Variants of presets: `NAME-study` is what the study of the paper starts from. With `paper.toml` and `NAME-paper.toml`
laid over it, as far as there are any, it makes `NAME-paper`, which takes the paper literally.
"""
LARGEST = 1 << 16
"""Bytes of a file of settings: several times what all of them with their explanations take."""


def with_method(config: Config, word: str) -> Config:
    """The same run by another method, given as `cfcl-explicit`, `uniform-implicit`, `fedavg`...

    `centralised` puts all points on one device, with no network, and so nothing that could go wrong there.
    """
    method = methods.parse(word)
    if method.policy in methods.ALONE and method.mode:
        raise CfclError(f"method {word!r:.60} has a mode, but {method.policy} moves nothing: write {method.policy!r}")
    if method.policy == "centralised":
        alone = ["partition.kind=iid", "partition.num_devices=1", "graph.kind=complete", "aggregation.num_devices=none"]
        quiet = {
            "faults": FaultsConfig(),
            "attack": AttackConfig(),
            "defence": DefenceConfig(),
            "privacy": PrivacyConfig(),
        }
        config = override(config.model_copy(update=quiet), alone)
    mode = [f"exchange.mode={method.mode}"] if method.mode else []
    return override(config, [f"exchange.method={method.policy}", *mode])


def presets() -> dict[str, str]:
    """Name and one-line description of every preset; each has a variant that takes the paper literally."""
    found: dict[str, str] = {}
    for item in resources.files("cfcl.presets").iterdir():
        name = item.name.removesuffix(".toml")
        if name != item.name and not name.endswith(PAPER.lstrip("-")):
            found[name] = item.read_text().partition("\n")[0].lstrip("# ")
            if not name.endswith(STUDY):
                found[name + PAPER] = "The study's settings with every reading taken literally from the paper."
    return dict(sorted(found.items()))


def load(spec: str | Path, overrides: Iterable[str] = ()) -> Config:
    """The run described by a preset name or a TOML file, with `section.key=value` overrides."""
    if not isinstance(spec, str | Path):
        raise CfclError(f"{shown(spec)} names no run: give the name of a preset, or the path of a TOML file")
    if str(spec) in presets():
        return build(_apply(_preset(str(spec)), overrides), source=str(spec))
    return parse(_read(Path(spec)), overrides, source=str(spec))


def parse(text: str, overrides: Iterable[str] = (), *, source: str = "the text") -> Config:
    """The run described by TOML text, with overrides; `source` is named in complaints."""
    if not isinstance(text, str) or len(text) > LARGEST:
        raise CfclError(f"{source} is not TOML of up to {LARGEST:,} characters: give the settings alone")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # A number of many digits or a date that does not exist is a plain ValueError.
        raise CfclError(f"{source} is not valid TOML: {error}; fix that line") from None
    return build(_apply(table, overrides), source=source)


def read_input() -> str:
    """What arrives on standard input."""
    found = sys.stdin.buffer.read(LARGEST + 1)
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CfclError(f"standard input is not text: {error}; give TOML in UTF-8") from None


def override(config: Config, overrides: Iterable[str]) -> Config:
    """`config` with `section.key=value` overrides."""
    return build(_apply(config.model_dump(exclude_none=True), overrides), source="the overridden config")


def build(table: dict[str, Any], *, source: str = "the config") -> Config:
    """A checked config from nested dicts."""
    try:
        return Config.model_validate(table)
    except ValidationError as error:
        raise CfclError(f"{source}: {explain(error, Config)}") from None
    except CfclError as error:
        raise CfclError(f"{source}: {error}") from None


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
    folder = resources.files("cfcl.presets")
    if not name.endswith(PAPER):
        return tomllib.loads((folder / f"{name}.toml").read_text())
    base = name.removesuffix(PAPER)
    below = next(file for kind in (STUDY, "") if (file := folder / f"{base}{kind}.toml").is_file())
    table = tomllib.loads(below.read_text())
    for layer in (folder / "paper.toml", folder / f"{name}.toml"):
        for section, fields_of_section in tomllib.loads(layer.read_text() if layer.is_file() else "").items():
            table[section] = {**table.get(section, {}), **fields_of_section}
    return {**table, "name": name}


def _meaning(info: FieldInfo) -> str:
    """What a field is for, with its options or limits."""
    text = " ".join((info.description or "").split())
    options = [repr(option) for option in get_args(info.annotation) if isinstance(option, str)]
    bounds = options or [word for word in [_limits(info)] if word]
    return f"{text} [{' | '.join(bounds)}]" if bounds else text


def _limits(info: FieldInfo) -> str:
    """Such as `1 to 4096`; nothing where there are none."""
    inner = [item for kind in get_args(info.annotation) for item in getattr(kind, "__metadata__", ())]
    found: dict[str, Any] = {}
    for item in [*info.metadata, *(rule for field in inner for rule in getattr(field, "metadata", ()))]:
        found |= {name: getattr(item, name) for name in ("ge", "gt", "le", "lt") if hasattr(item, name)}
    if not found:
        return ""
    low = f"{found['ge']:g}" if "ge" in found else f"above {found['gt']:g}"
    high = f"{found['le']:g}" if "le" in found else f"below {found['lt']:g}"
    return f"{low} to {high}"


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
        return reading.text(path, limit=LARGEST)
    except FileNotFoundError:
        near = difflib.get_close_matches(str(path)[:80], presets(), n=1)
        hint = f"did you mean the preset {near[0]!r}? " if near else ""
        raise CfclError(
            f"{str(path)!r:.80} is neither a preset nor a file: {hint}`cfcl presets` lists the presets"
        ) from None
    except (OSError, ValueError) as error:
        remedy = "give a readable UTF-8 TOML file, or - for standard input"
        raise CfclError(f"cannot read {str(path)!r:.200} as text: {error}; {remedy}") from None


def _apply(table: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    if isinstance(overrides, str) or not isinstance(overrides, Iterable):
        raise CfclError(f"overrides={shown(overrides)} is not a list: write ['exchange.num_pulled=5', ...]")
    result = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    for item in overrides:
        path, equals, text = item.partition("=") if isinstance(item, str) else ("", "", "")
        keys = path.strip().split(".")
        if not equals or len(keys) > 2 or not all(keys):
            raise CfclError(
                f"override {shown(item)} is not of the form section.key=value, such as exchange.num_pulled=5"
            )
        target = result
        if len(keys) == 2:
            target = result.setdefault(keys[0], {})
            if not isinstance(target, dict):
                raise CfclError(f"override {shown(item)}: {keys[0]!r} is not a section; `cfcl config` lists them")
        if text.strip() == "none":
            target.pop(keys[-1], None)
        else:
            target[keys[-1]] = _parse_value(text.strip())
    return result


def _parse_value(text: str) -> Any:
    """A TOML value; what is none is a word."""
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text  # a second line would be another setting
