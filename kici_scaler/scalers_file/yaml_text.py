"""Plain data to YAML that `source.parse` reads back as the same."""

from __future__ import annotations

import yaml

from kici_scaler.scalers_file.yaml_scalars import BadScalar, plain_value


def to_yaml(value: object) -> str:
    """Block style, keys in their order, no aliases; text that looks like a number is quoted."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """The safe dumper knows YAML 1.1, where for example `1e3` is text."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_quotes(text))


def _quotes(text: str) -> str | None:
    """Double ones escape what is not printable; None leaves the choice to the dumper."""
    if not text.isprintable():
        return '"'
    try:
        return None if isinstance(plain_value(text), str) else "'"
    except BadScalar:
        return "'"


_Dumper.add_representer(str, _represent_text)
